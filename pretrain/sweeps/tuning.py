"""Tuning: each arm is tried at each point of its grid before its runs, on seeds of their own.

A trial may be a share of the length of a run. It is then a whole run of less length, annealed to
its own end. Short runs favour high learning rates: a share of 1 is the safe one.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pretrain.checkpoint.starting import finished
from pretrain.config.errors import ConfigError
from pretrain.reports.words import listed
from pretrain.sweeps.folder import TRIALS
from pretrain.sweeps.plan import Sweep, SweepArm, SweepRun
from pretrain.sweeps.spec import ArmSpec, Point, in_a_name


@dataclass(frozen=True)
class Tried:
    """A point of the grid of an arm.

    Attributes:
        given: the arm.
        point: of its grid.
        trials: with each seed of tuning.
    """

    given: ArmSpec
    point: Point
    trials: list[SweepRun]

    @property
    def loss(self) -> float:
        """Return the median held-out loss at the end in nats; infinite: it diverged."""
        losses = []
        for run in self.trials:
            end = finished(run.folder)  # none: an anomaly stopped it
            loss = math.inf if end is None else end.held_out_loss
            losses.append(loss if math.isfinite(loss) else math.inf)
        return statistics.median(losses)

    def describe(self) -> str:
        """Return the settings that were changed."""
        return ", ".join(f"{name} {word}" for name, word in self.point.items())


def points_tried(sweep: Sweep, folder: Path) -> list[list[Tried]]:
    """Return the points of the grid of each arm; none: the sweep tunes nothing."""
    share, seeds = sweep.spec.tuning.share, tuning_seeds(sweep)

    def tried(given: ArmSpec, point: Point) -> Tried:
        arm = sweep.arm(given, point, share=share)
        values = [in_a_name(word) for word in point.values()]
        name = "-".join([given.name, *values, *([] if share == 1 else [f"{share:.4g}"])])
        places = {seed: folder / TRIALS / f"{name}-seed{seed}" for seed in seeds}
        return Tried(given, point, [SweepRun(arm, seed, place) for seed, place in places.items()])

    return [
        [tried(given, point) for point in given.points] for given in sweep.spec.arms if given.points
    ]


def tuning_seeds(sweep: Sweep) -> list[int]:
    """Return the seeds of trials: the first ones after those of all runs that are reported."""
    first = 1 + max(seed for arm in sweep.arms for seed in sweep.seeds_of(arm))
    return list(range(first, first + sweep.spec.tuning.seeds))


def choose(sweep: Sweep, by_arm: Sequence[Sequence[Tried]]) -> tuple[list[SweepArm], list[str]]:
    """Return each arm at its best point, and notes on what was tried.

    Raises:
        ConfigError: all trials of an arm diverged.
    """
    arms, notes = [], []
    for tried in by_arm:
        given, best = tried[0].given, min(tried, key=lambda one: one.loss)
        if best.loss == math.inf:
            raise ConfigError(f"every trial of {given.name} diverged; give [tune] lower values")
        arms.append(sweep.arm(given, best.point))
        losses = [f"{one.describe()}: {one.loss:.3f}".replace("inf", "diverged") for one in tried]
        notes.append(f"tuned {given.name}: {best.describe()} ({'; '.join(losses)})")
        edges = [name for name in best.point if _is_edge(name, best, tried)]
        if edges:
            notes.append(f"best at the edge of what was tried: {listed(edges)} of {given.name}")
    return arms, notes


def _is_edge(name: str, best: Tried, tried: Sequence[Tried]) -> bool:
    try:
        values = sorted({float(one.point[name]) for one in tried})
    except ValueError:
        return False
    return len(values) > 1 and float(best.point[name]) in (values[0], values[-1])
