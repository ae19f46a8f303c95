"""A small training problem, solved by a plain PyTorch loop and by the engine under any launcher.

As a program (`python`, `torchrun`): runs the engine over the given DeepSpeed configurations and
writes what happened to a JSON file, for the tests to compare:

    training_case.py FOLDER CONFIGURATION ... [-- SETTING ...]
"""

import functools
import json
import sys
from pathlib import Path

import torch

from pretrain.checkpoint.folders import checkpoint_folder
from pretrain.checkpoint.format import Checkpoint, load_weights
from pretrain.checkpoint.writer import Saver
from pretrain.config.ds_config import fill_ds_config, read_ds_config
from pretrain.config.recipe import load_settings
from pretrain.config.settings import CheckpointSettings
from pretrain.convert.initial_weights import load_initial_weights
from pretrain.data.batches import MaskedBatch
from pretrain.distributed.ranks import start_ranks, stop_ranks
from pretrain.engine import launch
from pretrain.engine.zero_choice import with_fitted_buckets
from pretrain.model.objectives.catalog import build_objective
from pretrain.schedules.layer_drop import scales_of_step, theta_at
from pretrain.schedules.learning_rate import learning_rate_at
from tests.plain_loop import plain_loop

STEPS, LENGTH, PREDICTIONS = 6, 16, 3
PLACES = 4  # micro-batches of a step, of all ranks


def case_settings(*words):
    """Return settings in which blocks are often skipped for whole steps."""
    return load_settings(
        "tiny_cpu",
        [
            *("--steps", str(STEPS), "--data.sequence_length", str(LENGTH)),
            *("--model.num_layers", "3", "--model.vocabulary_size", "64"),
            *("--layer_drop.schedule", "constant", "--layer_drop.theta_bar", "0.2"),
            *("--layer_drop.draw_per", "step", "--learning_rate.peak", "0.01"),
            *("--batch.global_sequences", "8", "--batch.micro_sequences", "2"),
            *("--optimizer.max_gradient_norm", "0.5", "--optimizer.weight_decay", "0.1"),
            *words,
        ],
    )


def build_model(settings):
    torch.manual_seed(settings.seed)
    return build_objective(settings.model, settings.objective, settings.electra)


def micro_batch(step, place):
    """Return the `place`-th pair of sequences of a global batch."""
    generator = torch.Generator().manual_seed(1000 * step + place)
    ids = torch.randint(5, 64, (2, LENGTH), generator=generator)
    columns = [torch.randperm(LENGTH, generator=generator)[:PREDICTIONS] for _ in ids]
    positions = torch.cat([row * LENGTH + picked for row, picked in enumerate(columns)])
    return MaskedBatch(ids, positions, ids.view(-1)[positions])


def micro_batches_of(settings, step, places, ranks):
    """Yield micro-batches with their scales, which ranks share."""
    theta = theta_at(step, settings.layer_drop, settings.steps)
    for place in places:
        draw = place // ranks
        scales = scales_of_step(step, settings, theta=theta, count=draw + 1)[draw]
        torch.manual_seed(1000 * step + place)  # of dropout, right before the forward pass
        yield micro_batch(step, place), scales


def reference(settings, model=None, update=None, *, places=PLACES, ranks=1, device="cpu"):
    """Train with nothing but PyTorch; arguments and result as of `plain_loop`."""

    def micro_batches(step):
        for batch, scales in micro_batches_of(settings, step, range(places), ranks):
            yield [tensor.to(device) for tensor in batch], scales

    model = build_model(settings).to(device) if model is None else model
    return plain_loop(model, settings, micro_batches, places=places, update=update)


def train_steps(engine, settings, steps, places=PLACES):
    """Let the engine take `steps` (a range) and return losses and gradient norms."""
    ranks, losses, norms = engine.ranks, [], []
    for step in steps:
        own = range(ranks.rank, places, ranks.world_size)
        batches = micro_batches_of(settings, step, own, ranks.world_size)
        rate = learning_rate_at(step, settings.learning_rate, settings.steps)
        result = engine.train_step(batches, rate)
        losses += engine.mean_over_ranks(result.losses.mean()[None])
        norms.append(None if result.gradient_norm is None else float(result.gradient_norm))
    return losses, norms


def build_engine(settings, ranks, config):
    """Build one with a DeepSpeed JSON, or that of a name, here "zero3_fp32:0" to divide all."""
    if isinstance(config, str):
        name, _, threshold = config.partition(":")
        config = read_ds_config(name, ranks.device)
        if threshold:
            config["zero_optimization"]["stage3_param_persistence_threshold"] = int(threshold)
    config = fill_ds_config(config, settings, world_size=ranks.world_size)
    # The other ranks must get the weights of the first.
    seeded = settings.model_copy(update={"seed": settings.seed + ranks.rank})
    # As in a run: the buckets of DeepSpeed's defaults take 2 GB of addresses for each engine.
    fitted = with_fitted_buckets(config, settings)
    weights = functools.partial(load_initial_weights, settings=settings)
    return launch.build_engine(seeded, fitted, ranks, load_weights=weights)


def saved(engine, folder, step):
    """Save what an engine holds after a step, and return the checkpoint."""
    saver = Saver(folder, CheckpointSettings(), engine.ranks)
    saver.save(step, engine.snapshot(), {})
    saver.wait()
    return Checkpoint(checkpoint_folder(folder, step))


def whole_and_resumed(settings, ranks, config, folder):
    """Train straight, and from a checkpoint half-way once more; return both and the weights."""
    folder.mkdir(exist_ok=True)
    engine = build_engine(settings, ranks, config)
    places = settings.batch.global_sequences // settings.batch.micro_sequences
    half, end = settings.steps // 2, settings.steps
    losses, norms = train_steps(engine, settings, range(half), places)
    checkpoint = saved(engine, folder, half)
    later, later_norms = train_steps(engine, settings, range(half, end), places)
    again = build_engine(settings, ranks, config)
    again.restore(checkpoint)
    resumed, _ = train_steps(again, settings, range(half, end), places)
    last = saved(again, folder, end)
    engine.evaluate([micro_batch(0, place) for place in range(3)])  # leaves all weights whole
    engine.restore(checkpoint)
    rewound, _ = train_steps(engine, settings, range(half, end), places)
    for each in (engine, again):
        each._engine.destroy()  # its hooks, so that those of one process do not see each other
    weights = load_weights(last.folder)
    return {
        "losses": losses + later,
        "norms": norms + later_norms,
        "resumed": resumed,
        "rewound": rewound,
        "weights": {key: value.tolist() for key, value in weights.items()},
    }


def main(folder, *words):
    names = [word for word in words if word.startswith("zero")]
    ranks, settings = start_ranks(), case_settings(*words[len(names) + 1 :])
    found = {name: whole_and_resumed(settings, ranks, name, Path(folder) / name) for name in names}
    if ranks.is_first:
        (Path(folder) / "found.json").write_text(json.dumps(found))
    stop_ranks()


if __name__ == "__main__":
    main(*sys.argv[1:])
