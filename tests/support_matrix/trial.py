"""The trial of cells: the engine against a plain PyTorch loop, and resumed.

python -m tests.support_matrix.trial OUTPUT    on every rank of this job
"""

import functools
import json
import sys
from pathlib import Path

import torch
from deepspeed.accelerator import get_accelerator

from pretrain.distributed.ranks import start_ranks, stop_ranks

from ..pretrain.engine import training_case as case
from .cells import STEPS, chosen_cells, ds_config_of, settings_of

# Relative: of losses, of gradient norms, and of the way that the weights have gone. In fp32 sums
# run in another order; bf16 keeps 8 bits of a number and fp16 11, and Adam divides small gradients
# by their own size, noise and all.
TOLERANCES = {
    "fp32": (2e-6, 1e-5, 1e-3),
    "bf16": (5e-3, 2e-2, 0.2),
    "bf16_autocast": (5e-3, 2e-2, 0.2),
    "fp16": (1e-3, 5e-3, 0.1),
}


@functools.cache
def reference(cell, device):
    """Train with nothing but PyTorch, in fp32, whatever the precision of the cell."""
    how = {"places": cell.places, "ranks": cell.ranks, "device": device}
    return case.reference(settings_of(cell), **how)


def complaint_of(cell, found, device):
    """Return what is wrong with what a cell has done, or an empty string."""
    # Of the cell only what changes the result counts, so that a loop serves many cells.
    plain = reference(cell._replace(stage=0, recomputes=False), device)
    apart = way = 0.0
    for name, start in case.build_model(settings_of(cell)).named_parameters():
        end = plain.weights[name]
        apart += float((torch.tensor(found["weights"][name]) - end).double().square().sum())
        way += float((end - start.detach()).double().square().sum())
    differences = [
        max(abs(one / other - 1) for one, other in zip(*pair, strict=True))
        for pair in ((found["losses"], plain.losses), (found["norms"], plain.norms))
    ]
    differences.append((apart / way) ** 0.5)
    names = zip(("loss", "norm", "weights"), differences, TOLERANCES[cell.precision], strict=True)
    problems = [f"{name} differs by {value:.1e}" for name, value, most in names if value > most]
    resumes = found["resumed"] == found["losses"][STEPS // 2 :]
    return ", ".join(problems + ["a resumed engine trains differently"] * (not resumes))


def main(output):
    ranks = start_ranks()
    # Slow on a CPU, but the same code path.
    get_accelerator().is_fp16_supported = lambda: True
    for number, cell in enumerate(chosen_cells(ranks.world_size)):
        folder = Path(f"{output}-{number}")
        found = case.whole_and_resumed(settings_of(cell), ranks, ds_config_of(cell), folder)
        if ranks.is_first:
            with Path(output).open("a") as stream:
                stream.write(json.dumps([cell, complaint_of(cell, found, ranks.device)]) + "\n")
    stop_ranks()


if __name__ == "__main__":
    main(*sys.argv[1:])
