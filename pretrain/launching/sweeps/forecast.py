"""How long the runs of a sweep take here: from measured steps, and from finished runs."""

import heapq
import math
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pretrain.checkpoint.starting import RESULT_FILE, RUN_FILE
from pretrain.config.json_objects import read_json_lines, read_json_object
from pretrain.config.settings import RunSettings, as_json
from pretrain.launching.child import last_line, run_child
from pretrain.launching.launch_plan import LaunchPlan
from pretrain.launching.sweeps.arms import Arm, SweepRun
from pretrain.reports.words import listed
from pretrain.schedules.horizon import SECONDS_PER_HOUR

MEASURED_SECONDS = 2  # of each arm
SPEED = re.compile(r"^seconds per step +(\S+)$", re.MULTILINE)  # as a dry run prints it

# Of a run before its first step: two cores take 6 to 15 s to import torch and DeepSpeed, to build
# the engine and to open the data. Used where nothing was measured.
START_SECONDS = 10.0

# A pass forward costs a third of a step (Kaplan et al. 2020, Sec. 2.1: 2 N of 6 N FLOPs a token).
EVALUATION_SHARE = 1 / 3


@dataclass
class Forecast:
    """The seconds that runs still take.

    Attributes:
        seconds_per_step: by the name of the arm; an arm that is not in it cannot be forecast.
        start_seconds: of each run before its first step.
    """

    seconds_per_step: dict[str, float]
    start_seconds: float = START_SECONDS
    _expected: float = field(default=0.0, init=False)  # of the runs that have ended
    _taken: float = field(default=0.0, init=False)

    def of(self, run: SweepRun) -> float | None:
        """Return the seconds from the start of a run, or its resumption, to its end."""
        if run.is_finished:
            return 0.0
        per_step = self.seconds_per_step.get(run.arm.name)
        if per_step is None:
            return None
        seconds = self.start_seconds + _seconds_of_steps(run, per_step)
        return seconds * (self._taken / self._expected if self._expected else 1.0)

    def add_finished(self, expected: float, taken: float) -> None:
        """Correct what follows by a run that was expected to take so many seconds."""
        # What was expected holds earlier corrections.
        correction = self._taken / self._expected if self._expected else 1.0
        self._expected += expected / correction
        self._taken += taken

    def left(
        self, waiting: Sequence[SweepRun], running: Sequence[float | None], at_once: int
    ) -> float | None:
        """Return the seconds until the last run ends; None: not known.

        Args:
            waiting: runs in the order in which they are started.
            running: seconds that each of the others still takes.
            at_once: number of runs that may run together.
        """
        of_waiting = [self.of(run) for run in waiting]
        known = [seconds for seconds in (*running, *of_waiting) if seconds is not None]
        if len(known) < len(waiting) + len(running):
            return None
        ends = [*known[: len(running)], *[0.0] * (at_once - len(running))]
        heapq.heapify(ends)
        for seconds in known[len(running) :]:
            heapq.heapreplace(ends, ends[0] + seconds)
        return max(ends)


def roughly(seconds: float) -> str:
    """Return a duration that is known roughly: "40 s", "7 min", "18 h" or "3 days"."""
    for unit, longest, name in ((1, 90, "s"), (60, 90, "min"), (SECONDS_PER_HOUR, 48, "h")):
        if seconds < longest * unit:
            return f"{seconds / unit:.2g} {name}"
    return f"{seconds / (24 * SECONDS_PER_HOUR):,.1f} days"


def forecast_of(runs: Sequence[SweepRun], plan: LaunchPlan) -> Forecast:
    """Return a forecast for runs of which some may be finished; measure the arms of the others.

    Args:
        runs: of the sweep.
        plan: of the first run.

    Raises:
        SystemExit: a signal asked to stop.
        ConfigError: the result of a finished run is damaged.
    """
    known = _speeds_of_finished(runs)
    unknown = {r.arm.name: r.arm for r in runs if not r.is_finished and r.arm.name not in known}
    if not unknown:
        return Forecast(known)
    print(f"measuring a few steps of {listed([*unknown])} ...", flush=True)
    forecast = _measured([*unknown.values()], plan)
    forecast.seconds_per_step.update(known)
    return forecast


def _speeds_of_finished(runs: Sequence[SweepRun]) -> dict[str, float]:
    """Return the mean seconds per step of each arm that has a finished run."""
    found: dict[str, list[float]] = {}
    for run in runs:
        if (run.folder / RESULT_FILE).exists():
            fix = "remove it, and resume the sweep"
            result = read_json_object(run.folder / RESULT_FILE, fix=fix)
            steps, seconds = result.get("step"), result.get("training_seconds")
            if isinstance(steps, int) and steps and isinstance(seconds, int | float):
                found.setdefault(run.arm.name, []).append(seconds / steps)
    return {arm: statistics.fmean(speeds) for arm, speeds in found.items()}


def _measured(arms: Sequence[Arm], plan: LaunchPlan) -> Forecast:
    """Take a few steps of each arm, in a process of its own.

    Where that fails, a line says why, and the arm is not forecast: training will report the error.
    """
    speeds, starts = {}, []
    for arm in arms:
        begin = time.monotonic()
        try:
            with tempfile.TemporaryDirectory() as folder:
                output, recipe = Path(folder) / "output", Path(folder) / arm.name
                recipe.mkdir(parents=True)
                (recipe / RUN_FILE).write_text(as_json(arm.settings))  # a command reads a run too
                words = ["train", str(recipe), "--run-folder", f"{recipe}/run", "--dry-run"]
                ended = run_child(plan.child([*words, "--measure", str(MEASURED_SECONDS)], output))
                found = SPEED.search(output.read_text())
                why = last_line(output)
        except OSError as error:  # a full disk
            ended, found, why = None, None, str(error)
        if ended is not None and ended.stopped:
            sys.exit(ended.status)
        if found is None:
            print(f"note: the speed of {arm.name} could not be measured: {why}")
            continue
        speeds[arm.name] = float(found[1])
        starts.append(max(0.0, time.monotonic() - begin - MEASURED_SECONDS))
    return Forecast(speeds, statistics.fmean(starts) if starts else START_SECONDS)


def _seconds_of_steps(run: SweepRun, per_step: float) -> float:
    """Return the seconds of training and evaluation that are left of a run."""
    settings = run.arm.settings
    step, trained = _position(run.folder)
    if settings.hours is None:
        seconds = max(0, settings.steps - step) * per_step
    else:
        seconds = max(0.0, settings.hours * SECONDS_PER_HOUR - trained)
    evaluations = math.ceil(seconds / per_step / settings.evaluation.every_steps)
    return seconds + evaluations * _seconds_of_evaluation(settings, per_step)


def _seconds_of_evaluation(settings: RunSettings, per_step: float) -> float:
    # The rows that there are may be fewer: this is an estimate for a person.
    return per_step * EVALUATION_SHARE * settings.evaluation.rows / settings.batch.global_sequences


def _position(folder: Path) -> tuple[int, float]:
    """Return the step of the newest checkpoint of a run, and the seconds of training up to it."""
    names = [path.name.removeprefix("step_") for path in folder.glob("checkpoints/step_*")]
    newest = max((int(name) for name in names if name.isdecimal()), default=0)
    rows = read_json_lines(folder / "metrics.jsonl")
    return newest, max(
        (row["training_seconds"] for row in rows if row["step"] <= newest), default=0
    )
