"""Trains the runs of a sweep, as many at once as there are launch plans."""

import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tabulate import tabulate

from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.config.run_files import result_of, was_stopped_by_anomaly
from pretrain.data.shards import shards_folder
from pretrain.reports.words import amount, counted
from pretrain.schedules.horizon import SECONDS_PER_HOUR
from pretrain.train.launching.child import Child, last_line, run_child
from pretrain.train.launching.launch_plan import LaunchPlan
from pretrain.train.launching.preparation import must_build
from pretrain.train.sweeps.plan import Sweep, SweepArm, SweepRun
from pretrain.train.sweeps.pool import numbered, run_units

MEASURED_SECONDS = 2  # of each arm
# As a dry run prints it; several machines put their names before it.
SPEED = re.compile(r"^(?:\S+: )?seconds per step +(\S+)$", re.MULTILINE)


def describe_sweep(
    sweep: Sweep, runs: Sequence[SweepRun], trials: Sequence[SweepRun], *, at_once: int
) -> str:
    """Return the arms, the number of runs and trials, the data and the place, in lines."""
    rows = [
        (arm.name, arm.recipe, ", ".join(changes), length)
        for arm in sweep.arms
        for changes in [[f"{n} {word}" for n, word in arm.words.items() if n != "name"]]
        for hours in [arm.settings.hours]
        for length in [f"{arm.settings.steps:,} steps" if hours is None else f"{hours:g} h"]
    ]
    done, settings = sum(run.is_finished for run in runs), sweep.arms[0].settings
    lines = [
        tabulate(rows, ("arm", "recipe", "changed", "length"), disable_numparse=True),
        "",
        f"runs: {len(runs)}, {done} finished, {at_once} at a time, in {runs[0].folder.parent}",
        f"data: {shards_folder(settings)}" + (" (built first)" if must_build(settings) else ""),
    ]
    if trials:
        share = sweep.spec.tuning.share
        lines.append(f"tuning: {len(trials)} trials before the runs, each {share:.0%} of a run")
    return "\n".join(lines)


def describe_time(runs: Sequence[SweepRun], plans: Sequence[LaunchPlan]) -> str:
    """Measure some steps of each arm, and return how long the steps of the runs that are left take.

    Raises:
        SystemExit: a signal asked to stop.
        ConfigError: an arm cannot be trained.
    """
    left = [run for run in runs if not run.is_finished]
    seconds: dict[str, float] = {}
    for arm in {run.arm.name: run.arm for run in left}.values():
        if arm.settings.hours is not None:
            seconds[arm.name] = arm.settings.hours * SECONDS_PER_HOUR
            continue
        print(f"measuring the speed of {arm.name} ...", flush=True)
        seconds[arm.name] = arm.settings.steps * _seconds_per_step(arm, plans[0])
    each = ", ".join(f"{name} {amount(s, 'training_seconds')}" for name, s in seconds.items())
    whole = sum(seconds[run.arm.name] for run in left) / min(len(plans), len(left))
    whole_words = amount(whole, "training_seconds")
    return f"steps take about {whole_words}, starts and evaluations apart; a run: {each}"


def _seconds_per_step(arm: SweepArm, plan: LaunchPlan) -> float:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "output"
        words = ["train", arm.recipe, *arm.command, "--run-folder", f"{folder}/run", "--dry-run"]
        ended = run_child(plan.child([*words, "--measure", str(MEASURED_SECONDS)], output))
        if ended.stopped:
            sys.exit(ended.status)
        found = SPEED.search(output.read_text())
        if found is None:
            raise ConfigError(f"{arm.name} cannot be trained: {last_line(output)}")
        return float(found[1])


def train_runs(runs: Sequence[SweepRun], plans: Sequence[LaunchPlan]) -> None:
    """Train the runs that are not finished, each in new processes.

    A run holds a plan until it ends. One plan: a run writes to this terminal. Several: each writes
    to a file of its own.

    Raises:
        SystemExit: a run failed, and the others have ended; or a signal asked to stop.
    """
    say = numbered([run.folder.name for run in runs])
    failed: list[int] = []  # statuses

    def start(run: SweepRun, plan: LaunchPlan) -> Child:
        words = ("--seed", str(run.seed), *run.arm.command)
        if load_settings(run.arm.recipe, words) != run.settings:
            raise ConfigError(f"{run.arm.recipe} has changed since the sweep began")
        say(run.folder.name, f"{'resuming' if run.has_begun else 'starting'} in {run.folder}")
        run.folder.parent.mkdir(parents=True, exist_ok=True)  # of its output, and of trials
        return plan.child(run.words, output_file(run) if len(plans) > 1 else None)

    def ended(run: SweepRun, status: int | Exception, stopped: bool) -> None:
        end, name, output = result_of(run.folder), run.folder.name, ""
        if len(plans) > 1 and isinstance(status, int):
            output = f"; {last_line(output_file(run))} ({output_file(run)})"
        if end is not None:
            say(name, f"finished, held-out loss {end.held_out_loss:.4f}")
        elif stopped:
            say(name, f"asked to stop{output}")
        elif was_stopped_by_anomaly(run.folder):
            say(name, "diverged, and the others go on")
        else:
            # The deepspeed launcher reports success when its workers are killed by a signal.
            how = f"failed with status {status}" if status else "ended without a result"
            say(name, how + output if isinstance(status, int) else f"not started: {status}")
            failed.append(status if isinstance(status, int) and status else 1)

    for run in runs:
        if run.is_finished:
            say(run.folder.name, "finished before")
    run_units([run for run in runs if not run.is_finished], plans, start, ended)
    if failed:
        print(f"{counted(len(failed), 'run')} failed; the others have ended", file=sys.stderr)
        sys.exit(failed[0])


def output_file(run: SweepRun) -> Path:
    """Return the file with the output of a run that is trained beside others."""
    return run.folder.with_name(f"{run.folder.name}.log")
