"""Which run reached a held-out loss sooner: in steps, tokens, training seconds and FLOPs.

The first run is the baseline. Runs that differ only in the seed form one arm, of which medians
and the spread are shown. Nothing is smoothed. Where a run passes the target between two
evaluations, the place is interpolated linearly between them.
"""

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tabulate import tabulate

from pretrain.config import ConfigError, flat

# Key in evals.jsonl -> what it is called.
AXES = {
    "step": "steps",
    "tokens": "tokens",
    "training_seconds": "time",
    "flops": "FLOPs",
}

# A learning rate below this share of its peak counts as annealed.
ANNEALED = 0.05

# These settings say how long or where a run goes, not what it is.
NOT_COMPARED = ("name", "seed")


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
    def tokens_per_second(self) -> float:
        """Return the mean speed of training."""
        last = self.evaluations[-1]
        return float(last["tokens"] / last["training_seconds"])


@dataclass(frozen=True)
class Arm:
    """Runs that differ in nothing but the seed."""

    name: str
    runs: list[Run]

    def median(self, value: Callable[[Run], float | None]) -> float | None:
        """Return the median over the runs; None if it is None for any of them."""
        values = [value(run) for run in self.runs]
        present = [number for number in values if number is not None]
        return statistics.median(present) if len(present) == len(values) else None


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
        ConfigError: it holds no run, or a run without an evaluation.
    """
    if not (folder / "run.json").is_file():
        raise ConfigError(f"{folder} is not a run folder: it has no run.json")
    result = folder / "result.json"
    run = Run(
        folder=folder,
        settings=flat(json.loads((folder / "run.json").read_text())),
        launches=_read_lines(folder / "launches.jsonl"),
        metrics=_read_lines(folder / "metrics.jsonl"),
        evaluations=_read_lines(folder / "evals.jsonl"),
        result=json.loads(result.read_text()) if result.is_file() else None,
    )
    if not run.evaluations or not run.launches:
        raise ConfigError(f"{folder} has no evaluation yet; let the run reach its first one")
    return run


def compare(runs: Sequence[Run], target: str = "auto") -> Comparison:
    """Compare runs with the first one.

    Args:
        runs: at least two.
        target: a held-out loss in nats, or "auto": the loss that the first arm ends with.

    Raises:
        ConfigError: they were not evaluated on the same held-out data, are fewer than two, one
            of them is there twice, or the target is no number.
    """
    _refuse_incomparable(runs)
    arms = _arms(runs)
    if target == "auto":
        loss = statistics.median(run.final_loss for run in arms[0].runs)
    else:
        try:
            loss = float(target)
        except ValueError:
            raise ConfigError(f"--target {target!r} is neither a number nor auto") from None
    return Comparison(arms, loss, _notes(arms, loss))


def crossing(run: Run, target: float, axis: str) -> float | None:
    """Return the amount of `axis` at which the held-out loss first fell to `target`.

    Between the evaluation that is first at or below the target and the one before, the loss is
    taken to fall linearly. None if no evaluation is at or below it.
    """
    before: dict[str, Any] | None = None
    for evaluation in run.evaluations:
        if evaluation["loss"] <= target:
            if before is None:
                return float(evaluation[axis])
            share = (before["loss"] - target) / (before["loss"] - evaluation["loss"])
            return float(before[axis] + share * (evaluation[axis] - before[axis]))
        before = evaluation
    return None


def differing_settings(arms: Sequence[Arm]) -> dict[str, list[Any]]:
    """Return the settings that are not equal in all arms, with the value of each arm."""
    names = [name for name in arms[0].runs[0].settings if name not in NOT_COMPARED]
    values = {name: [arm.runs[0].settings.get(name) for arm in arms] for name in names}
    return {name: found for name, found in values.items() if any(v != found[0] for v in found)}


def table(comparison: Comparison) -> str:
    """Return the comparison as a table for the terminal."""
    return tabulate(
        table_rows(comparison),
        headers=table_headers(comparison),
        colalign=("left", *["right"] * 8),
        disable_numparse=True,
    )


def table_headers(comparison: Comparison) -> list[str]:
    """Return the names of the columns of `table_rows`."""
    to_target = [f"{name} to {comparison.target:.3f}" for name in AXES.values()]
    return ["arm", "parameters", "held-out loss", *to_target, "sooner in time", "tokens/s"]


def table_rows(comparison: Comparison) -> list[list[str]]:
    """Return a row per arm: size, final loss, what the target took, and speed."""
    rows = []
    for arm in comparison.arms:
        reached = {axis: comparison.reached(arm, axis) for axis in AXES}
        speed_up = comparison.speed_up(arm, "training_seconds")
        parameters = arm.runs[0].result["parameters"] if arm.runs[0].result else None
        rows.append(
            [
                arm.name if len(arm.runs) == 1 else f"{arm.name} ({len(arm.runs)} seeds)",
                amount(parameters, "parameters"),
                _spread([run.final_loss for run in arm.runs]),
                *(amount(reached[axis], axis) for axis in AXES),
                "-" if speed_up is None else f"{speed_up:.2f} x",
                f"{arm.median(lambda run: run.tokens_per_second):,.0f}",
            ]
        )
    return rows


def amount(value: float | None, axis: str) -> str:
    """Return an amount as people write it; None is "not reached"."""
    if value is None:
        return "not reached"
    if axis == "training_seconds":
        minutes, seconds = divmod(round(value), 60)
        hours, minutes = divmod(minutes, 60)
        if hours:
            return f"{hours} h {minutes:02d} min"
        return f"{minutes} min {seconds:02d} s" if minutes else f"{value:.1f} s"
    if axis == "step":
        return f"{value:,.0f}"
    for size, name in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.2f} {name}"
    return f"{value:.0f}"


def _spread(values: Sequence[float]) -> str:
    median = f"{statistics.median(values):.3f}"
    return median if len(values) == 1 else f"{median} ({min(values):.3f} - {max(values):.3f})"


def _read_lines(file: Path) -> list[dict[str, Any]]:
    if not file.is_file():
        return []
    return [json.loads(line) for line in file.read_text().splitlines(keepends=True) if "\n" in line]


def _refuse_incomparable(runs: Sequence[Run]) -> None:
    if len(runs) < 2:
        raise ConfigError("a comparison needs at least two runs; name another one")
    folders = [run.folder.resolve() for run in runs]
    for number, run in enumerate(runs):
        if folders[number] in folders[:number]:
            raise ConfigError(f"{run.folder} is named twice; name each run once")
        if run.launches[-1]["held_out"] != runs[0].launches[-1]["held_out"]:
            raise ConfigError(
                f"{run.folder} and {runs[0].folder} were not evaluated on the same held-out rows, "
                "tokenizer and masks: their losses cannot be compared"
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
        if run.result is None:
            notes.append(f"{run.folder} is not finished: its last evaluation is taken as its end")
        elif run.result["final_learning_rate"] > ANNEALED * run.result["peak_learning_rate"]:
            share = run.result["final_learning_rate"] / run.result["peak_learning_rate"]
            notes.append(
                f"the learning rate of {run.folder} was not annealed: it ended at {share:.0%} of "
                "its peak, and annealing it would lower the loss"
            )
    return notes + _differences(runs)


def _differences(runs: Sequence[Run]) -> list[str]:
    """Return a note for everything outside of the model that differs between runs."""
    looked_at: dict[str, Callable[[Run], Any]] = {
        "devices: seconds cannot be compared": lambda run: run.launches[-1]["device"],
        "numbers of ranks: seconds cannot be compared": lambda run: run.launches[-1]["world_size"],
        "versions of the packages": lambda run: run.launches[-1]["versions"],
        "commits of the code": lambda run: run.launches[-1]["commit"],
        "training data": lambda run: run.launches[-1]["training_data"],
        "training budgets": lambda run: run.evaluations[-1]["tokens"],
        "batch sizes": lambda run: run.settings["batch.global_sequences"],
    }
    return [
        f"the runs have different {what}"
        for what, value in looked_at.items()
        if any(value(run) != value(runs[0]) for run in runs)
    ]
