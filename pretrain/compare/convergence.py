"""Which run reached a held-out loss sooner: in steps, tokens, training seconds and FLOPs.

The first run is the baseline. Runs that differ only in the seed form one arm, of which medians
and the spread are shown. Nothing is smoothed. Where a run passes the target between two
evaluations, the place is interpolated linearly between them.
"""

import itertools
import json
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pretrain.compare.notes import history_notes, launch_differences
from pretrain.compare.run_files import (
    Evaluation,
    Launch,
    Metrics,
    Result,
    Settings,
    read_checked,
    read_checked_lines,
)
from pretrain.config.errors import ConfigError
from pretrain.config.settings import DEFAULT_OBJECTIVE, flat

# Key in evals.jsonl -> what it is called.
AXES = {
    "step": "steps",
    "tokens": "tokens",
    "training_seconds": "time",
    "flops": "FLOPs",
}

# A learning rate below this share of its peak counts as annealed.
ANNEALED = 0.05

# From this spread of its speed on, the time of a run is doubtful.
UNSTEADY = 0.1

# Runs that differ in these only are the same thing, done again.
NOT_COMPARED = ("name", "seed")

# Settings that older runs lack, with the value that they had.
ADDED_SETTINGS = {"objective": DEFAULT_OBJECTIVE}


@dataclass(frozen=True)
class Run:
    """What a run folder says."""

    folder: Path
    settings: dict[str, Any]  # flat: "model.norm" -> "pre"
    launches: list[dict[str, Any]]
    metrics: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]
    result: dict[str, Any] | None  # None: not finished

    @property
    def final_loss(self) -> float:
        """Return the held-out loss of the last evaluation, in nats."""
        return float(self.evaluations[-1]["loss"])

    @property
    def best_loss(self) -> float:
        """Return the lowest held-out loss of any evaluation, in nats."""
        return min(float(row["loss"]) for row in self.evaluations if math.isfinite(row["loss"]))

    @property
    def diverged(self) -> bool:
        """Return whether a held-out loss is infinite or not a number."""
        return not all(math.isfinite(row["loss"]) for row in self.evaluations)

    @property
    def tokens_per_second(self) -> float:
        """Return the mean speed of training."""
        last = self.evaluations[-1]
        return float(last["tokens"] / last["training_seconds"])

    @property
    def speed_spread(self) -> float:
        """Return the interquartile range of the speed between log lines, over its median."""
        speeds = [row["tokens_per_second"] for row in self.metrics]
        if len(speeds) < 4:
            return 0.0
        low, median, high = statistics.quantiles(speeds, n=4)
        return float((high - low) / median)


@dataclass(frozen=True)
class Arm:
    """Runs that differ in nothing but the seed."""

    name: str
    runs: list[Run]

    def median(self, value: Callable[[Run], float | None]) -> float | None:
        """Return the median over the runs; None, "never", counts as more than any number."""
        values = [value(run) for run in self.runs]
        median = statistics.median(math.inf if number is None else number for number in values)
        return median if math.isfinite(median) else None


@dataclass(frozen=True)
class Comparison:
    """Arms, baseline first, and the held-out loss at which they are compared."""

    arms: list[Arm]
    target: float
    notes: list[str]

    def reached(self, arm: Arm, axis: str) -> float | None:
        """Return the median amount of `axis` at which the arm reached the target."""
        return arm.median(lambda run: crossing(run, self.target, axis))

    def speed_up(self, arm: Arm, axis: str) -> float | None:
        """Return how many times less of `axis` the arm needed than the baseline."""
        ours, baseline = self.reached(arm, axis), self.reached(self.arms[0], axis)
        return None if ours is None or baseline is None else baseline / ours


def read_run(folder: Path) -> Run:
    """Read a run folder.

    Raises:
        ConfigError: it holds no run, a damaged one, or one without a finite held-out loss.
    """
    if not (folder / "run.json").is_file():
        raise ConfigError(f"{folder} is not a run folder: it has no run.json")
    result = folder / "result.json"
    run = Run(
        folder=folder,
        settings=ADDED_SETTINGS | flat(read_checked(folder / "run.json", Settings)),
        launches=read_checked_lines(folder / "launches.jsonl", Launch),
        metrics=read_checked_lines(folder / "metrics.jsonl", Metrics),
        evaluations=read_checked_lines(folder / "evals.jsonl", Evaluation),
        result=read_checked(result, Result) if result.is_file() else None,
    )
    for name, lines in (("metrics.jsonl", run.metrics), ("evals.jsonl", run.evaluations)):
        steps = [line["step"] for line in lines]
        if any(later <= step for step, later in itertools.pairwise(steps)):
            raise ConfigError(
                f"{folder / name} is damaged: its steps do not ascend; leave this run out"
            )
    if not run.evaluations or not run.launches:
        raise ConfigError(f"{folder} has no evaluation yet; let the run reach its first one")
    if not any(math.isfinite(row["loss"]) for row in run.evaluations):
        raise ConfigError(f"{folder} has no finite held-out loss: it diverged; leave it out")
    return run


def compare(runs: Sequence[Run], target: str = "auto") -> Comparison:
    """Compare runs with the first one.

    Args:
        runs: at least two.
        target: a held-out loss in nats, or "auto": the loss that the first arm ends with, over
            several seeds the median (of an even number, the higher one in the middle).

    Raises:
        ConfigError: they were not evaluated on the same held-out data, are fewer than two, one
            of them is there twice, or the target is no finite number.
    """
    _refuse_incomparable(runs)
    arms = _arms(runs)
    if target == "auto":
        diverged = [run.folder for run in arms[0].runs if not math.isfinite(run.final_loss)]
        if diverged:
            raise ConfigError(f"the baseline run {diverged[0]} diverged; give a --target in nats")
        # The upper median: at least half of the baseline's runs reach it, and so does their median.
        loss = statistics.median_high(run.final_loss for run in arms[0].runs)
    else:
        try:
            loss = float(target)
        except ValueError:
            loss = math.nan
        if not math.isfinite(loss):
            raise ConfigError(f"--target {target!r} is neither a number nor auto")
    return Comparison(arms, loss, _notes(arms, loss))


def crossing(run: Run, target: float, axis: str) -> float | None:
    """Return the amount of `axis` at which the held-out loss first fell to `target`.

    Between the evaluation that is first at or below the target and the one before, the loss is
    taken to fall linearly; where the one before diverged, the former itself counts. None if no
    evaluation is at or below it.
    """
    before: dict[str, Any] | None = None
    for evaluation in run.evaluations:
        if evaluation["loss"] <= target:
            if before is None or not math.isfinite(before["loss"]):
                return float(evaluation[axis])
            share = (before["loss"] - target) / (before["loss"] - evaluation["loss"])
            return float(before[axis] + share * (evaluation[axis] - before[axis]))
        before = evaluation
    return None


def differing_settings(arms: Sequence[Arm]) -> dict[str, list[Any]]:
    """Return the settings that are not equal in all arms, with the value of each arm."""
    every = {name: None for arm in arms for name in arm.runs[0].settings}  # in reading order
    names = [name for name in every if name not in NOT_COMPARED]
    values = {name: [arm.runs[0].settings.get(name) for arm in arms] for name in names}
    return {name: found for name, found in values.items() if any(v != found[0] for v in found)}


def _refuse_incomparable(runs: Sequence[Run]) -> None:
    if len(runs) < 2:
        raise ConfigError("a comparison needs at least two runs; name another one")
    folders = [run.folder.resolve() for run in runs]
    for number, run in enumerate(runs):
        if folders[number] in folders[:number]:
            raise ConfigError(f"{run.folder} is named twice; name each run once")
        if any(launch["held_out"] != runs[0].launches[0]["held_out"] for launch in run.launches):
            raise ConfigError(
                f"{run.folder} and {runs[0].folder} were not evaluated on the same held-out rows, "
                "tokenizer, masks and loss: they cannot be compared"
            )


def _arms(runs: Sequence[Run]) -> list[Arm]:
    groups: dict[str, list[Run]] = {}
    for run in runs:
        what = {name: value for name, value in run.settings.items() if name not in NOT_COMPARED}
        groups.setdefault(json.dumps(what), []).append(run)
    names = [members[0].settings["name"] for members in groups.values()]
    return [
        # Arms of one name, such as two starts of a recipe with overrides, get their folders'.
        Arm(name if names.count(name) == 1 else str(members[0].folder), members)
        for name, members in zip(names, groups.values(), strict=True)
    ]


def _notes(arms: Sequence[Arm], target: float) -> list[str]:
    """Return what a reader must know before believing the numbers."""
    notes = []
    runs = [run for arm in arms for run in arm.runs]
    for arm in arms:
        missed = sum(crossing(run, target, "step") is None for run in arm.runs)
        if missed:
            notes.append(
                f"{missed} of {len(arm.runs)} runs of {arm.name} never reached {target:.3f}"
            )
        if len(arm.runs) == 1:
            notes.append(f"{arm.name} has one seed only: what another seed changes is not known")
    for run in runs:
        if run.diverged:
            notes.append(f"{run.folder} diverged: a held-out loss is infinite or not a number")
        if run.speed_spread > UNSTEADY:
            notes.append(
                f"the speed of {run.folder} varied: the middle half of its intervals spans "
                f"{run.speed_spread:.0%} of the median, so its time is that uncertain"
            )
        if run.result is None:
            notes.append(f"{run.folder} is not finished: its last evaluation is taken as its end")
        elif run.result["final_learning_rate"] > ANNEALED * run.result["peak_learning_rate"]:
            share = run.result["final_learning_rate"] / run.result["peak_learning_rate"]
            notes.append(
                f"the learning rate of {run.folder} was not annealed: it ended at {share:.0%} of "
                "its peak, and annealing it would lower the loss"
            )
        notes += history_notes(str(run.folder), run.launches)
    by_arm = {arm.name: [one for run in arm.runs for one in run.launches] for arm in arms}
    return notes + launch_differences(by_arm) + _differences(runs)


def _differences(runs: Sequence[Run]) -> list[str]:
    """Return a note for everything that was spent or given to some runs and not to others."""
    looked_at: dict[str, list[Any]] = {
        "training budgets": [_budget(run) for run in runs],
        "batch sizes": [run.settings["batch.global_sequences"] for run in runs],
        "weights to start from: what was spent on these is not counted": [
            run.settings.get("initial_weights") for run in runs
        ],
    }
    return [
        f"the runs have different {what}"
        for what, values in looked_at.items()
        if any(value != values[0] for value in values)
    ]


def _budget(run: Run) -> str:
    """Return what ended a run: its hours, which never hold the same tokens twice, or its tokens."""
    hours = run.settings.get("hours")
    return f"{run.evaluations[-1]['tokens']} tokens" if hours is None else f"{hours} hours"
