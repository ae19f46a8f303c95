"""Tuning: each arm is tried at each point of its grid before its runs, on seeds of their own.

A trial may be a share of the length of a run. It is then a whole run of less length, annealed to
its own end. Short runs favour high learning rates: a share of 1 is the safe one.
"""

import math
import statistics
from collections.abc import Sequence
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

from pretrain.config.run_files import result_of
from pretrain.train.sweeps.plan import TRIALS, Sweep, SweepArm, SweepRun
from pretrain.train.sweeps.pool import unit_folder
from pretrain.train.sweeps.spec import ArmSpec, Point

FIRST_SEED = 1_000_000  # of trials


class Tried(NamedTuple):
    """A point of the grid of an arm, and its trials, one with each seed of tuning."""

    point: Point
    trials: list[SweepRun]


def points_tried(sweep: Sweep, folder: Path) -> list[list[Tried]]:
    """Return the points of the grid of each arm; none: the sweep tunes nothing.

    The seeds are far from those of runs that are reported, whose number may grow.
    """
    share = sweep.spec.tuning.share
    seeds = range(FIRST_SEED, FIRST_SEED + sweep.spec.tuning.seeds)

    def tried(given: ArmSpec, point: Point) -> Tried:
        arm = sweep.arm(given, point, share=share)
        values = [*point.values(), *([] if share == 1 else [f"{share:.4g}"])]
        places = [unit_folder(folder / TRIALS, given.name, seed, values) for seed in seeds]
        return Tried(point, list(map(SweepRun, repeat(arm), seeds, places)))

    return [
        [tried(given, point) for point in given.points] for given in sweep.spec.arms if given.points
    ]


def choose(sweep: Sweep, by_arm: Sequence[Sequence[Tried]]) -> tuple[list[SweepArm], list[str]]:
    """Return each arm at the point of the lowest median loss, and notes on what was tried.

    Where all trials of an arm diverged it is the first.
    """
    arms, notes = [], []
    for tried in by_arm:
        given = tried[0].trials[0].arm
        ends = [[result_of(trial.folder) for trial in one.trials] for one in tried]
        losses = [  # without an end it diverged
            statistics.median(end.held_out_loss if end else math.inf for end in of_point)
            for of_point in ends
        ]
        lowest = losses.index(min(losses))
        arms.append(sweep.arm(given, tried[lowest].point))
        words = [", ".join(f"{name} {word}" for name, word in one.point.items()) for one in tried]
        shown = [f"{point}: {loss:.3f}" for point, loss in zip(words, losses, strict=True)]
        found = "; ".join(shown).replace("inf", "diverged")
        notes.append(f"tuned {given.name}: {words[lowest]} ({found})")
    return arms, notes
