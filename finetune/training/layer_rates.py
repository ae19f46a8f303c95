"""Lower learning rates for the lower layers: layer-wise decay (Clark et al., ELECTRA, ICLR 2020).

    depth of a weight                                                    factor of the rate
    head of the task                                                     1
    the encoder's last norm (norm = "pre")                               decay
    block l of L, from 1                                                 decay^(L + 2 - l)
    embeddings, their norm, everything of the positions                  decay^(L + 2)

The exponents are those of the authors' code, which counts a pooler between the last block and the
head that their model no longer has; here the last norm is in that place. The tables and projections
of positions count as embeddings, also where each block has one: they act from the first block on.
"""

import re
from collections.abc import Sequence
from typing import Any

from torch import nn

from finetune.training.model import ENCODER, TaskModel

BLOCK = re.compile(re.escape(ENCODER) + r"blocks\.(\d+)\.")
LAST_NORM = f"{ENCODER}final_norm."


def rate_factors(model: TaskModel, decay: float) -> dict[nn.Parameter, float]:
    """Return what multiplies the learning rate of each parameter."""
    top = len(model.encoder.blocks) + 2
    return {
        parameter: decay ** (top - _depth(name, top))
        for name, parameter in model.named_parameters()
    }


def split_by_rate(
    groups: Sequence[dict[str, Any]], factors: dict[nn.Parameter, float]
) -> list[dict[str, Any]]:
    """Split an optimizer's groups so that each has one factor, its `learning_rate_factor`.

    Equal factors leave the groups, and the order of their parameters, as they are. Weight decay is
    not divided by the factor: it becomes as much slower as the rate, as in the authors' code.
    """
    split = []
    for group in groups:
        by_factor: dict[float, list[nn.Parameter]] = {}
        for parameter in group["params"]:
            by_factor.setdefault(factors[parameter], []).append(parameter)
        split += [
            {**group, "params": parameters, "learning_rate_factor": factor}
            for factor, parameters in by_factor.items()
        ]
    return split


def _depth(name: str, top: int) -> int:
    if not name.startswith(ENCODER):
        return top
    if name.startswith(LAST_NORM):
        return top - 1
    block = BLOCK.match(name)
    return int(block[1]) + 1 if block else 0
