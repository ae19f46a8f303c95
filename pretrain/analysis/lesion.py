"""Held-out loss without a block, and at random depth.

PLD's body shows what dropping blocks does to a trained network. Here every block is left out
alone, and blocks are dropped at random as layer drop does in training: block i of L is kept with
the probability 1 - (i / L)(1 - theta), and the branches of kept blocks are scaled by its inverse if
the run's `layer_drop.rescale` says so. Draw d of all keep ratios and runs uses the same coins, so
that differences between them are not those of the draws.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy
import torch

from data_prep.files.progress_bar import Bar, progress_bar
from pretrain.analysis.findings import Cell, Findings, Table
from pretrain.analysis.lesion_picture import draw_lesions
from pretrain.analysis.panels import when
from pretrain.analysis.subjects import Subject, num_predictions, num_rows, seeded_loss
from pretrain.config.settings import LayerDropSettings
from pretrain.data.batches import MaskedBatch
from pretrain.model.objectives import Objective
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


def findings(subjects: Sequence[Subject]) -> Findings:
    """Return the losses of each run."""
    measured: dict[str, Lesions] = {}
    batches = {subject.label: subject.batches() for subject in subjects}
    total = sum(
        num_rows(batches[subject.label]) * _most_networks(subject.settings.model.num_layers)
        for subject in subjects
    )
    with progress_bar("lesion", total, "row", shown=True) as bar:
        for subject in subjects:
            model = subject.model(subject.steps[0])
            loss = held_out_losses(model, batches[subject.label], bar)
            drop = subject.settings.layer_drop
            measured[subject.label] = measure_lesions(loss, len(model.encoder.blocks), drop)
    steps = {subject.label: subject.steps[0] for subject in subjects}
    caption = _caption(subjects)
    tables = {
        "without_a_block": _without(measured, steps),
        "random_depth": _random(measured, steps),
    }
    figures = {"lesion": draw_lesions(measured, caption)}
    return Findings(_short(measured, steps), tables, figures, [caption])


def measure_lesions(loss: Loss, num_layers: int, drop: LayerDropSettings) -> Lesions:
    """Evaluate the whole network, those without one block, and those of random depth.

    Args:
        loss: of branch scales.
        num_layers: number of blocks.
        drop: how kept blocks are scaled, and which blocks may be dropped.
    """
    whole = loss(None)
    without = [
        loss([float(layer != left_out) for layer in range(num_layers)])
        for left_out in range(num_layers)
    ]
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
    total = sum(
        seeded_loss(model, batch, scales).item() * batch.num_predictions() for batch in batches
    )
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


def _most_networks(num_layers: int) -> int:
    return 1 + num_layers + len(KEEP_RATIOS) * DRAWS


def _without(measured: dict[str, Lesions], steps: dict[str, int]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for run, found in measured.items():
        rows.append((run, steps[run], "none", found.whole, 0.0))
        rows += [
            (run, steps[run], block, loss, loss - found.whole)
            for block, loss in enumerate(found.without, 1)
        ]
    return Table(("run", "step", "block_left_out", "loss_nats", "increase_nats"), rows)


def _random(measured: dict[str, Lesions], steps: dict[str, int]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (run, steps[run], *depth, DRAWS)
        for run, found in measured.items()
        for depth in found.random
    ]
    columns = ("loss_nats", "low_nats", "high_nats", "mean_blocks", "draws")
    return Table(("run", "step", "keep_ratio", *columns), rows)


def _short(measured: dict[str, Lesions], steps: dict[str, int]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for run, found in measured.items():
        least, most = min(found.without), max(found.without)
        half = found.random[0]
        rows.append(
            (run, steps[run], found.whole, least - found.whole, most - found.whole)
            + (found.without.index(most) + 1, half.loss - found.whole)
        )
    half_name = f"random, theta {KEEP_RATIOS[0]}"
    columns = ("run", "step", "loss", "least costly block", "most costly", "which", half_name)
    return Table(columns, rows)


def _caption(subjects: Sequence[Subject]) -> str:
    named = ", ".join(
        f"{subject.label} ({subject.settings.model.norm} norm, layer drop "
        f"{subject.settings.layer_drop.schedule}) {when(subject.steps)}"
        for subject in subjects
    )
    return (
        f"{named}: held-out loss above that of the whole network. Left: without one block. Right: "
        "blocks dropped at random as layer drop does with the keep ratio theta of the last block, "
        f"mean over {DRAWS} draws, which are the same for all runs, with a 95 % bootstrap interval."
    )
