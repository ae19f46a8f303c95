"""The trial of cells: the engine against a plain PyTorch loop, and resumed.

python -m tests.support_matrix.trial OUTPUT    on every rank of this job
"""

import functools
import json
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as distributed

from pretrain.checkpoint.folders import checkpoint_folder
from pretrain.checkpoint.format import Checkpoint
from pretrain.checkpoint.writer import Saver
from pretrain.config.settings import CheckpointSettings
from pretrain.data.batches import MaskedBatch
from pretrain.distributed.ranks import start_ranks, stop_ranks
from pretrain.engine import launch
from pretrain.model.objectives.catalog import build_objective
from pretrain.schedules.layer_drop import scales_of_step
from pretrain.schedules.learning_rate import learning_rate_at

from ..plain_loop import LoopResult, plain_loop
from .cells import LENGTH, ROWS, STEPS, VOCABULARY, chosen_cells, ds_config_of, settings_of

PREDICTIONS = 5
STOPPED_AFTER = 2

# Relative: of losses, of gradient norms, and of the way that the weights have gone. In fp32 sums
# run in another order; bf16 keeps 8 bits of a number and fp16 11, and Adam divides small gradients
# by their own size, noise and all.
TOLERANCES = {
    "fp32": (2e-6, 1e-5, 1e-3),
    "bf16": (5e-3, 2e-2, 0.2),
    "bf16_autocast": (5e-3, 2e-2, 0.2),
    "fp16": (1e-3, 5e-3, 0.1),
}


def micro_batch(place):
    """Return the `place`-th micro-batch, the same at every step: so there is something to learn."""
    generator = torch.Generator().manual_seed(place)
    ids = torch.randint(5, VOCABULARY, (ROWS, LENGTH), generator=generator)
    positions = torch.randperm(ids.numel(), generator=generator)[:PREDICTIONS]
    return MaskedBatch(ids, positions, ids.view(-1)[positions])


def build_model(settings, seed=0):
    torch.manual_seed(seed)
    return build_objective(settings.model, settings.objective, settings.electra)


@functools.cache
def reference(cell, device="cpu"):
    """Train with nothing but PyTorch, in fp32, whatever the precision of the cell."""
    settings = settings_of(cell)

    def micro_batches(step):
        scales = branch_scales(cell, settings, step)
        for place in range(cell.places):
            torch.manual_seed(1000 * step + place)
            batch = [tensor.to(device) for tensor in micro_batch(place)]
            yield batch, scales[place // cell.ranks]

    model = build_model(settings).to(device)
    return plain_loop(model, settings, micro_batches, places=cell.places)


def branch_scales(cell, settings, step):
    """Return the drop mask of each micro-batch of a rank: drawn anew for each of them."""
    theta = settings.layer_drop.theta_bar if cell.drops_layers else 1.0
    return scales_of_step(step, settings, theta=theta, count=cell.micro_batches)


def train_steps(engine, cell, steps):
    """Let the engine take `steps` (a range) and return losses and gradient norms."""
    settings, ranks, losses, norms = settings_of(cell), engine.ranks, [], []
    for step in steps:
        scales = branch_scales(cell, settings, step)

        def micro_batches(step=step, scales=scales):
            for micro in range(cell.micro_batches):
                place = micro * ranks.world_size + ranks.rank
                torch.manual_seed(1000 * step + place)  # right before the forward pass
                yield micro_batch(place), scales[micro]

        result = engine.train_step(
            micro_batches(), learning_rate_at(step, settings.learning_rate, STEPS)
        )
        assert not result.skipped, f"step {step} was skipped"
        losses += engine.mean_over_ranks(result.losses.mean()[None])
        norms.append(float(result.gradient_norm))
    return losses, norms


def build_engine(cell, ranks, seed=0):
    if cell.precision == "fp16" and ranks.device == "cpu":
        # Imported by now, and as the engine does it.
        sys.modules["deepspeed"].accelerator.get_accelerator().is_fp16_supported = lambda: (
            True
        )  # slow there, but the same code path
    settings, config = settings_of(cell), ds_config_of(cell)
    # The other ranks must get the weights of the first.
    seeded = settings.model_copy(update={"seed": seed + ranks.rank})
    return launch.build_engine(seeded, config, ranks)


def try_cell(cell, ranks):
    """Train straight and in two launches, and compare.

    A rank that fails alone would leave the others waiting; that ends the program, as it should.
    """
    engine = build_engine(cell, ranks)
    losses, norms = train_steps(engine, cell, range(STOPPED_AFTER))
    stopped = engine.snapshot()
    late_losses, late_norms = train_steps(engine, cell, range(STOPPED_AFTER, STEPS))
    last = engine.snapshot()
    engine._engine.destroy()  # its hooks, so that cells of one process do not see each other

    restored = build_engine(cell, ranks, seed=1)
    with_files(cell, ranks, stopped, restored.restore)
    again, _ = train_steps(restored, cell, range(STOPPED_AFTER, STEPS))
    resumes = again == late_losses and same(last, restored.snapshot())
    restored._engine.destroy()

    found = LoopResult([*losses, *late_losses], [*norms, *late_norms], last)
    return compare(found, cell, resumes, ranks.device)


def with_files(cell, ranks, snapshot, restore):
    """Write a checkpoint to a disk and read it again."""
    folder = [tempfile.mkdtemp() if ranks.is_first else None]
    if ranks.world_size > 1:
        distributed.broadcast_object_list(folder)
    saver = Saver(Path(folder[0]), CheckpointSettings(), ranks)
    saver.save(STOPPED_AFTER, snapshot, {})
    saver.wait()
    checkpoint = Checkpoint(checkpoint_folder(Path(folder[0]), STOPPED_AFTER))
    checkpoint.verify()
    restore(checkpoint)


def same(one, other):
    """Return whether two snapshots are equal to the bit."""
    return (
        (one.counters, one.pieces) == (other.counters, other.pieces)
        and one.tensors.keys() == other.tensors.keys()
        and all(torch.equal(tensor, other.tensors[key]) for key, tensor in one.tensors.items())
    )


def compare(found, cell, resumes, device="cpu"):
    """Return the largest relative differences of loss, norm and weights; whether it resumes."""
    settings = settings_of(cell)
    # Of the cell only what changes the result counts, so that a loop serves many cells.
    plain = reference(cell._replace(stage=0, recomputes=False), device)
    start = dict(build_model(settings).named_parameters())
    apart, way = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for name, (first, size) in found.weights.pieces.items():
        here = found.weights.tensors[f"weight/{name}"].double()
        there = plain.weights[name].flatten()[first : first + size].double()
        before = start[name].detach().flatten()[first : first + size].double()
        apart += (here - there).square().sum()
        way += (there - before).square().sum()
    sums = torch.stack([apart, way, torch.tensor(float(not resumes), dtype=torch.float64)])
    sums = sums.to(device)
    distributed.all_reduce(sums)
    furthest = [
        max(abs(one / other - 1) for one, other in zip(*pair, strict=True))
        for pair in ((found.losses, plain.losses), (found.norms, plain.norms))
    ]
    return *furthest, float((sums[0] / sums[1]).sqrt()), not float(sums[2])


def complaint_of(cell, found):
    """Return what is wrong with (loss, norm, weights, resumes) of a cell, or an empty string."""
    *differences, resumes = found
    names = zip(("loss", "norm", "weights"), differences, TOLERANCES[cell.precision], strict=True)
    problems = [
        f"{name} differs by {value:.1e}" for name, value, most in names if not value <= most
    ]
    return ", ".join(problems + ["a resumed engine trains differently"] * (not resumes))


def main(output):
    ranks = start_ranks()
    for cell in chosen_cells(ranks.world_size):
        found = try_cell(cell, ranks)
        if ranks.is_first:
            with Path(output).open("a") as stream:
                stream.write(json.dumps([cell, complaint_of(cell, found)]) + "\n")
    stop_ranks()


if __name__ == "__main__":
    main(*sys.argv[1:])
