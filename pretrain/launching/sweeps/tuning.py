"""Tuning: each arm is tried with equally many values before its runs, on seeds of their own.

A trial may be a share of the length of a run. It is then a whole run of less length, annealed to
its own end. Short runs favour high learning rates: a share of 1 is the safe one.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pretrain.checkpoint.starting import finished
from pretrain.config.errors import ConfigError
from pretrain.launching.sweeps.arms import Arm, SweepRun
from pretrain.launching.sweeps.folder import TRIALS
from pretrain.launching.sweeps.spec import ArmSpec, Tuning, in_a_name
from pretrain.launching.sweeps.sweep import Sweep
from pretrain.reports.words import listed

Point = tuple[tuple[str, str], ...]  # a setting and its word, of each


@dataclass(frozen=True)
class Tried:
    """A point of an arm.

    Attributes:
        point: what was changed.
        loss: held-out loss at the end in nats, the median over the seeds; infinite: it diverged.
    """

    point: Point
    loss: float


@dataclass(frozen=True)
class TunedArm:
    """An arm with the values that were chosen for it."""

    arm: Arm
    chosen: Point
    tried: tuple[Tried, ...]
    seeds: tuple[int, ...]

    def describe(self) -> list[str]:
        """Return what was tried and chosen, as a sentence, and a warning if it is at an edge."""
        losses = ", ".join(f"{_in_words(one.point)}: {_loss(one.loss)}" for one in self.tried)
        seeds = f"seed{'s' * (len(self.seeds) > 1)} {listed([*map(str, self.seeds)])}"
        said = [f"{self.arm.name} was tuned on {seeds} ({losses}): {_in_words(self.chosen)}"]
        edges = [f"{name} {word}" for name, word in self.chosen if self._is_edge(name, word)]
        if edges:
            said.append(
                f"the best of {self.arm.name} is at the edge of what was tried, "
                f"{listed(edges)}: try values beyond it"
            )
        return said

    def _is_edge(self, name: str, word: str) -> bool:
        words = {dict(one.point)[name] for one in self.tried}
        try:
            values = sorted(map(float, words))
            return len(values) > 1 and float(word) in (values[0], values[-1])
        except ValueError:
            return False


def tune(
    sweep: Sweep, tuning: Tuning, folder: Path, train: Callable[[list[SweepRun]], None]
) -> list[TunedArm]:
    """Train the trials of all arms that are not finished, and choose.

    Args:
        sweep: the arms.
        tuning: what each of them tries.
        folder: of the sweep.
        train: trains runs, in their order.

    Raises:
        ConfigError: all trials of an arm diverged.
    """
    seeds = tuning_seeds(sweep, tuning)
    trials = {
        given.name: {
            point: _trials(sweep, given, point, tuning.share, seeds, folder)
            for point in _points(tuning, given)
        }
        for given in sweep.spec.arms
    }
    # By seed: a sweep that is stopped early has the same seeds of all points.
    each = [runs for of_arm in trials.values() for runs in of_arm.values()]
    train([run for seed in zip(*each, strict=True) for run in seed])
    arms = []
    for given in sweep.spec.arms:
        tried = tuple(Tried(point, _median(runs)) for point, runs in trials[given.name].items())
        best = min(tried, key=lambda one: one.loss)
        if best.loss == math.inf:
            raise ConfigError(f"every trial of {given.name} diverged; give [tune] lower values")
        arm = sweep.arm(given, dict(best.point))
        arms.append(TunedArm(arm, best.point, tried, tuple(seeds)))
    return arms


def tuning_seeds(sweep: Sweep, tuning: Tuning) -> list[int]:
    """Return the seeds of trials: the first ones after those of all runs that are reported."""
    first = 1 + max(seed for arm in sweep.arms for seed in sweep.seeds_of(arm))
    return list(range(first, first + tuning.seeds))


def first_trials(sweep: Sweep, tuning: Tuning, folder: Path) -> list[SweepRun]:
    """Return a trial of each arm."""
    seeds, share = tuning_seeds(sweep, tuning), tuning.share
    return [
        _trials(sweep, arm, _points(tuning, arm)[0], share, seeds, folder)[0]
        for arm in sweep.spec.arms
    ]


def _points(tuning: Tuning, arm: ArmSpec) -> tuple[Point, ...]:
    return tuple(tuple(point.items()) for point in tuning.points_of(arm))


def _trials(
    sweep: Sweep, given: ArmSpec, point: Point, share: float, seeds: Sequence[int], folder: Path
) -> list[SweepRun]:
    arm = sweep.arm(given, dict(point), share=share)
    values = [in_a_name(word) for _, word in point]
    length = [] if share == 1 else [f"{share:.4g}"]
    name = "-".join([given.name, *values, *length])
    return [
        SweepRun(
            arm,
            folder / TRIALS / f"{name}-seed{seed}",
            ("--seed", str(seed), *arm.words),
        )
        for seed in seeds
    ]


def _median(runs: Sequence[SweepRun]) -> float:
    losses = []
    for run in runs:
        end = finished(run.folder)  # none: an anomaly stopped it
        loss = math.inf if end is None else end.held_out_loss
        losses.append(loss if math.isfinite(loss) else math.inf)
    return statistics.median(losses)


def _in_words(point: Point) -> str:
    return ", ".join(f"{name} {word}" for name, word in point)


def _loss(loss: float) -> str:
    return f"{loss:.3f}" if math.isfinite(loss) else "diverged"
