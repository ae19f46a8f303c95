"""Runs as a comparison reads them, and where their held-out loss reached a target."""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pretrain.config.errors import ConfigError
from pretrain.config.run_files import (
    LAUNCHES_FILE,
    RUN_FILE,
    EvaluationLine,
    Launch,
    Metrics,
    Result,
    hint_at_runs,
    read_checked_lines,
    result_of,
    settings_of,
    was_stopped_by_anomaly,
)
from pretrain.config.settings import stored_settings

# Runs that differ in these only are repetitions. The same shards may lie on another machine:
# launches hold a checksum of what was read from them.
NOT_COMPARED = ("name", "seed", "data.shards")
REPAIRS = ("loggers", "checkpoint.", "trouble.")  # what a resume may change for one run of an arm
# Costs that differ by less than this share are equal.
EQUAL_COST = 0.001

# In nats below the unigram entropy. Nearer than that, a comparison shows which arm left the plateau
# first, and little about what the arms learn from context.
TARGET_MARGIN = 1.0


@dataclass(frozen=True)
class Run:
    """The content of a run folder."""

    folder: Path
    settings: dict[str, Any]  # flat: "model.norm" -> "pre"
    launches: list[dict[str, Any]] = field(repr=False)
    metrics: list[dict[str, Any]] = field(repr=False)
    evaluations: list[dict[str, Any]] = field(repr=False)
    result: Result | None  # None: not finished
    was_stopped: bool = False  # by an anomaly, before its end

    @property
    def final_loss(self) -> float:
        """Return the held-out loss at the end in nats; infinite: an anomaly came before."""
        return math.inf if self.was_stopped else float(self.evaluations[-1]["loss"])

    @property
    def diverged(self) -> bool:
        """Return whether a held-out loss is not finite, or an anomaly stopped the run."""
        return self.was_stopped or not all(math.isfinite(row["loss"]) for row in self.evaluations)

    @property
    def is_unfinished(self) -> bool:
        """Return whether there is more to train."""
        return self.result is None and not self.was_stopped

    @property
    def tokens_per_second(self) -> float:
        """Return all tokens over all seconds in training steps, those of the start included."""
        last = self.evaluations[-1]
        return float(last["tokens"] / last["training_seconds"])


@dataclass(frozen=True)
class Arm:
    """Runs that differ in nothing but the seed."""

    name: str
    runs: list[Run]

    def median(self, value: Callable[[Run], float | None]) -> float | None:
        """Return the median over the runs; None ("never") counts as infinity."""
        median = statistics.median(self.values(value))
        return median if math.isfinite(median) else None

    def values(self, value: Callable[[Run], float | None]) -> list[float]:
        """Return the value of each run; None is infinity."""
        found = [value(run) for run in self.runs]
        return [math.inf if one is None else one for one in found]

    @property
    def launches(self) -> list[dict[str, Any]]:
        """Return the launches of all its runs."""
        return [launch for run in self.runs for launch in run.launches]

    @property
    def compared_settings(self) -> dict[str, Any]:
        """Return the settings that its runs share, texts by their names without folders."""
        settings = dict(self.runs[0].settings)
        for launch in reversed(self.runs[0].launches):
            changed = launch.get("changed_settings", {}).items()
            settings |= {key: old for key, (old, _) in changed if key.startswith(REPAIRS)}
        corpus = [Path(place).name for place in settings["data.corpus"]]
        shared = {key: each for key, each in settings.items() if key not in NOT_COMPARED}
        return shared | {"data.corpus": corpus}


def read_run(folder: Path) -> Run:
    """Read a run folder.

    Raises:
        ConfigError: it holds no run, a damaged one, or one without a finite held-out loss.
    """
    if not (folder / RUN_FILE).is_file():
        has_seeds = any(folder.glob(f"*-seed*/{RUN_FILE}"))
        hint = f"; of a sweep give {folder}/*-seed*/" if has_seeds else hint_at_runs(folder)
        raise ConfigError(f"{folder} is not a run folder: it has no {RUN_FILE}{hint}")
    result = result_of(folder)
    run = Run(
        folder=folder,
        settings=stored_settings(settings_of(folder)),
        launches=read_checked_lines(folder / LAUNCHES_FILE, Launch),
        metrics=read_checked_lines(folder / "metrics.jsonl", Metrics),
        evaluations=read_checked_lines(folder / "evals.jsonl", EvaluationLine),
        result=result,
        was_stopped=result is None and was_stopped_by_anomaly(folder),
    )
    if not any(row["step"] for row in run.evaluations) or not run.launches:
        raise ConfigError(f"{folder} has no evaluation yet; let the run reach its first one")
    if not any(math.isfinite(row["loss"]) for row in run.evaluations):
        raise ConfigError(f"{folder} has no finite held-out loss: it diverged; leave it out")
    return run


def have_equal_flops(runs: Sequence[Run]) -> bool:
    """Return whether finished runs cost equally many FLOPs, within a step or 0.1 %.

    The FLOPs are expected ones, without the chance of layer drop. Those of positions depend on the
    numbers of ranks and passes, which a budget cannot know.
    """
    costs = [None if run.result is None else run.result.expected_flops for run in runs]
    known = [float(cost) for cost in costs if cost is not None]
    if len(known) < len(runs):
        return False
    steps = [run.evaluations[-1]["step"] for run in runs]
    dearest = max(cost / step for cost, step in zip(known, steps, strict=True))
    return bool(max(known) - min(known) <= max(dearest, EQUAL_COST * max(known)))


def crossing(run: Run, target: float, axis: str) -> float | None:
    """Return the amount of `axis` at which the held-out loss first fell to `target`.

    See `place_of_loss`. A line from step 0, where a loss bends most, is not interpolated.
    """
    curve = [(row[axis], row["loss"]) for row in run.evaluations if row["step"]]
    return place_of_loss(curve, target)


def place_of_loss(curve: Iterable[tuple[float, float]], target: float) -> float | None:
    """Return the place at which the loss of a curve of (place, loss) first fell to `target`.

    It is interpolated linearly between the first point at or below the target and the one before;
    if there is none, or it diverged, the former itself counts: an upper bound. None if no point is
    at or below the target.
    """
    before: tuple[float, float] | None = None
    for place, loss in curve:
        if loss <= target:
            if before is None or not math.isfinite(before[1]):
                return float(place)
            earlier, higher = before
            return float(earlier + (higher - target) / (higher - loss) * (place - earlier))
        before = place, loss
    return None


def is_below_from_the_start(run: Run, target: float) -> bool:
    """Return whether `crossing` is an upper bound: no finite loss above the target comes before."""
    losses = [math.inf, *(row["loss"] for row in run.evaluations if row["step"])]
    place = next((n for n, loss in enumerate(losses) if loss <= target), 0)
    return losses[place] < target and not math.isfinite(losses[place - 1])


def differing_settings(arms: Sequence[Arm]) -> dict[str, list[Any]]:
    """Return the settings that are not equal in all arms, with the value in each arm."""
    every = {name: None for arm in arms for name in arm.compared_settings}  # in reading order
    values = {name: [arm.compared_settings.get(name) for arm in arms] for name in every}
    return {name: found for name, found in values.items() if any(v != found[0] for v in found)}


def is_near_plateau(loss: float, entropy: float | None) -> bool:
    """Return whether a held-out loss is less than `TARGET_MARGIN` below a known entropy."""
    return entropy is not None and loss > entropy - TARGET_MARGIN


def automatic_target(arms: Sequence[Arm], entropy: float | None) -> float:
    """Return a held-out loss behind the plateau that most arms reach, or else the baseline's.

    It is the highest final loss of the arms that end behind the plateau, if these are two at least;
    otherwise the final loss of the baseline, or where it diverged, the highest of the arms that did
    not. Over seeds the median counts, of an even number the higher one in the middle: at least half
    of the runs reach it, and so does their median.

    Raises:
        ConfigError: most runs of every arm diverged.
    """
    ends = [statistics.median_high(arm.values(lambda run: run.final_loss)) for arm in arms]
    behind = [end for end in ends if entropy is not None and not is_near_plateau(end, entropy)]
    if len(behind) > 1:
        return max(behind)
    finite = [end for end in ends if math.isfinite(end)]
    if not finite:
        raise ConfigError("most runs of every arm diverged; give tupelo compare a --target in nats")
    return ends[0] if math.isfinite(ends[0]) else max(finite)
