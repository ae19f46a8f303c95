"""What a sweep will do, before it does it: a line for each arm, and how long it takes."""

import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pretrain.checkpoint.starting import RUN_FILE
from pretrain.config.settings import RunSettings, as_json
from pretrain.data.shards import shards_folder
from pretrain.launching.child import last_line, run_child
from pretrain.launching.launch_plan import LaunchPlan
from pretrain.launching.preparation import must_build
from pretrain.launching.sweeps.arms import Arm, SweepRun
from pretrain.launching.sweeps.smoke import NOTE
from pretrain.launching.sweeps.sweep import Sweep
from pretrain.reports.table import Table
from pretrain.reports.terminal import terminal_width
from pretrain.reports.words import amount, counted
from pretrain.schedules.horizon import SECONDS_PER_HOUR

MEASURED_SECONDS = 2  # of each arm
SPEED = re.compile(r"^seconds per step +(\S+)$", re.MULTILINE)  # as a dry run prints it


def describe_sweep(
    sweep: Sweep, by_arm: Sequence[Sequence[SweepRun]], *, folder: Path, plans: Sequence[LaunchPlan]
) -> str:
    """Return the arms, the seeds, the length of a run, the data and the place, in lines.

    Args:
        sweep: to describe.
        by_arm: its runs.
        folder: of the sweep.
        plans: of the starts of runs, as many as are trained together.
    """
    runs = [run for arm in by_arm for run in arm]
    finished = sum(run.is_finished for run in runs)
    settings, tuning = sweep.arms[0].settings, sweep.spec.tuning  # one set of shards for all arms
    names = ("arm", "recipe", "changed", "length", "tokens")
    rows = [
        dict(
            zip(
                names,
                (given.name, given.recipe, given.changes, *_length(arm.settings)),
                strict=True,
            )
        )
        for given, arm in zip(sweep.spec.arms, sweep.arms, strict=True)
    ]
    lines = [
        Table("Arms", rows, text=("recipe", "changed")).as_text(terminal_width()),
        "",
        f"runs: {len(runs)} ({counted(len(by_arm[0]), 'seed')}), {finished} finished, "
        f"{len(plans)} at a time, in {folder}",
        f"data: {shards_folder(settings)}" + (" (built first)" if must_build(settings) else ""),
    ]
    if tuning is not None:
        tried = max(len(tuning.points_of(arm)) for arm in sweep.spec.arms)
        length = "" if tuning.share == 1 else f", each {tuning.share:.0%} of a run"
        lines.append(
            f"tuning: {tried * tuning.seeds * len(by_arm)} trials before the runs, {tried} values "
            f"x {counted(tuning.seeds, 'seed')} for each arm{length}"
        )
    return "\n".join([*lines, *([f"note: {NOTE}"] if sweep.is_smoke_test else [])])


def _length(settings: RunSettings) -> tuple[str, str]:
    if settings.hours is not None:
        return amount(settings.hours * SECONDS_PER_HOUR, "training_seconds"), "-"
    tokens = settings.steps * settings.batch.global_sequences * settings.data.sequence_length
    return f"{settings.steps:,} steps", amount(tokens, "tokens")


def describe_time(runs: Sequence[SweepRun], plan: LaunchPlan, *, at_once: int) -> str:
    """Measure some steps of each arm, and return how long all runs that are left train.

    Args:
        runs: of the sweep; those that are finished are left out.
        plan: of the start of a run.
        at_once: number of runs that are trained together.

    Raises:
        SystemExit: a signal asked to stop.
    """
    seconds: dict[str, float] = {}
    left = [run for run in runs if not run.is_finished]
    for arm in {run.arm.name: run.arm for run in left}.values():
        settings = arm.settings
        if settings.hours is not None:
            seconds[arm.name] = settings.hours * SECONDS_PER_HOUR
            continue
        print(f"measuring the speed of {arm.name} ...", flush=True)
        measured = _seconds_per_step(arm, plan)
        if isinstance(measured, str):
            return f"note: the speed of {arm.name} could not be measured: {measured}"
        seconds[arm.name] = settings.steps * measured
    each = ", ".join(f"{name} {amount(s, 'training_seconds')}" for name, s in seconds.items())
    whole = sum(seconds[run.arm.name] for run in left) / min(at_once, len(left))
    return f"training takes about {amount(whole, 'training_seconds')}; a run: {each}"


def _seconds_per_step(arm: Arm, plan: LaunchPlan) -> float | str:
    """Return them, or why they are not known; training will report the error."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            output, recipe = Path(folder) / "output", Path(folder) / arm.name
            recipe.mkdir()
            (recipe / RUN_FILE).write_text(as_json(arm.settings))  # a command reads a run, too
            words = ["train", str(recipe), "--run-folder", f"{recipe}/run", "--dry-run"]
            ended = run_child(plan.child([*words, "--measure", str(MEASURED_SECONDS)], output))
            if ended.stopped:
                sys.exit(ended.status)
            found = SPEED.search(output.read_text())
            return last_line(output) if found is None else float(found[1])
    except OSError as error:  # a full disk
        return str(error)
