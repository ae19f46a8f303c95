"""Held-out loss without a block, and at random depth.

PLD's body shows what dropping blocks does to a trained network. Here every block is left out
alone, and blocks are dropped at random as PLD does in training, whatever the run's own schedule:
block i of L is kept with the probability 1 - (i / L)(1 - theta), and the branches of kept blocks
are scaled by its inverse if the run's `layer_drop.rescale` says so. Draw d of all keep ratios and
runs uses the same coins, so that differences between them are not those of the draws.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy
import torch

from data_prep.files.progress_bar import Bar
from pretrain.analysis.subjects import num_predictions, num_rows
from pretrain.config.settings import LayerDropSettings
from pretrain.data.batches import MaskedBatch
from pretrain.model.objectives.objective import Objective
from pretrain.schedules.layer_drop import branch_scales

KEEP_RATIOS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # theta
DRAWS = 16
RESAMPLES, CONFIDENCE, SEED = 2000, 0.95, 0

Loss = Callable[[Sequence[float] | None], float]  # of branch scales, in nats


class RandomDepth(NamedTuple):
    """The loss at a keep ratio: mean over draws, and its 95 % bootstrap interval, in nats."""

    keep_ratio: float
    loss: float
    low: float
    high: float
    blocks: float  # that ran, on average


class Lesions(NamedTuple):
    """Held-out losses in nats: of the whole network, without each block, and at random depth."""

    whole: float
    without: list[float]  # block 1 first
    random: list[RandomDepth]


def measure_lesions(loss: Loss, num_layers: int, *, rescale: bool) -> Lesions:
    """Evaluate the whole network, those without one block, and those of random depth.

    Args:
        loss: of branch scales.
        num_layers: number of blocks.
        rescale: whether kept branches are scaled, as `layer_drop.rescale`.
    """
    whole = loss(None)
    without = [
        loss([float(layer != left_out) for layer in range(num_layers)])
        for left_out in range(num_layers)
    ]
    drop = LayerDropSettings(schedule="constant", rescale=rescale)
    random = [_random_depth(loss, num_layers, drop, ratio) for ratio in KEEP_RATIOS]
    return Lesions(whole, without, random)


def held_out_losses(model: Objective, batches: Sequence[MaskedBatch], bar: Bar) -> Loss:
    """Return a function from branch scales to the held-out loss in nats; it computes each once."""
    known: dict[tuple[float, ...] | None, float] = {}

    def loss(scales: Sequence[float] | None) -> float:
        key = None if scales is None else tuple(scales)
        if key not in known:
            known[key] = _held_out_loss(model, batches, scales)
        bar.update(num_rows(batches))
        return known[key]

    return loss


@torch.no_grad()
def _held_out_loss(
    model: Objective, batches: Sequence[MaskedBatch], scales: Sequence[float] | None
) -> float:
    total = 0.0
    for batch in batches:
        total += float(model(*batch, scales)) * batch.num_predictions()
    return total / num_predictions(batches)


def _random_depth(
    loss: Loss, num_layers: int, drop: LayerDropSettings, ratio: float
) -> RandomDepth:
    drawn = [
        branch_scales(0, draw, drop, theta=ratio, num_layers=num_layers, seed=SEED)
        for draw in range(DRAWS)
    ]
    losses = numpy.array([loss(scales) for scales in drawn])
    generator = numpy.random.Generator(numpy.random.Philox(SEED))
    means = generator.choice(losses, size=(RESAMPLES, DRAWS)).mean(1)
    low, high = numpy.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    blocks = float(numpy.mean([numpy.count_nonzero(scales) for scales in drawn]))
    return RandomDepth(ratio, float(losses.mean()), float(low), float(high), blocks)
