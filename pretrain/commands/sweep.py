"""Train several arms, each with several seeds, and compare them.

    tupelo sweep                              the five arms of ./run_pretrain.sh
    tupelo sweep bert_a mine.toml --seeds 3   two arms with three seeds each
    tupelo sweep theta_bar                    the arms and seeds of a spec
    tupelo sweep --hours 2                    two hours for each run
    tupelo sweep smoke                        all of it, tiny, in a minute

The first arm is the baseline. Runs and report go to runs/NAME. The command that it prints
continues a sweep. Several GPUs are divided evenly among runs. Any setting can be changed for all
arms: --section.name value. A spec is one that tupelo recipes lists, or your own .toml file:

    seeds = 3                                 # or [4, 8, 9]
    budget = "flops"                          # as --budget
    [settings]                                # of all arms
    steps = 800
    [arms]                                    # the baseline first
    baseline = "bert_r"
    [arms.drop]                               # one arm for each value
    recipe = "tupe_r_pld"
    values.layer_drop.theta_bar = [0.5, 0.9]
    [tune]                                    # each arm, before its runs
    learning_rate.peak = [2e-3, 4e-3, 8e-3]
"""

import argparse
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from data_prep.command_line import CommandParser, run_command
from data_prep.commands.options import at_least_1
from data_prep.files.program import curves_command, shell_command
from pretrain.commands.catalog import COMMANDS
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import add_settings
from pretrain.config.run_files import RUN_FILE, diverged_at_once, last_launch
from pretrain.data.shards import held_out_fingerprint, open_data
from pretrain.distributed.processes import is_launched
from pretrain.train.launching.child import run_child
from pretrain.train.launching.given_words import given_words
from pretrain.train.launching.launch_plan import LaunchPlan, add_launch_options, plan_launches
from pretrain.train.launching.preparation import prepare_data
from pretrain.train.sweeps.plan import REPORT, Sweep, SweepRun
from pretrain.train.sweeps.pool import locked
from pretrain.train.sweeps.training import describe_sweep, describe_time, train_runs
from pretrain.train.sweeps.tuning import choose, points_tried


def add_arguments(parser: CommandParser) -> None:
    """Add the options of `tupelo sweep`."""
    parser.add_argument(
        "--seeds", nargs="+", type=int, metavar="N", help="a count (3) or a list (4 8 9)"
    )
    parser.add_argument(
        "--budget",
        metavar="UNIT[=AMOUNT]",
        help="give all arms equal tokens or flops: AMOUNT, or those of the baseline",
    )
    parser.add_argument(
        "--at-once",
        type=at_least_1,
        metavar="N",
        help="train N runs at once (default: one per GPU; on a CPU one)",
    )
    add_launch_options(parser)
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="make every check of a start, and print size and memory of each arm",
    )
    add_settings(parser, recipe_nargs="*")


def main(arguments: argparse.Namespace) -> None:
    """Train what is not finished, then compare.

    Raises:
        ConfigError: a setting, a name or a machine does not exist, a run has no result, or the
            folder holds runs of other settings.
        SystemExit: a run failed, or a signal asked to stop.
    """
    if is_launched():
        raise ConfigError(
            "a sweep starts the launcher of its runs itself (--gpus, --hostfile), but this process "
            "has one already; start it without, or: unset RANK"
        )
    folder = _folder(arguments)
    sweep = Sweep(arguments)
    by_point = points_tried(sweep, folder)
    trials = _by_seed([one.trials for tried in by_point for one in tried])
    runs = _by_seed(sweep.runs(folder))
    plans = plan_launches(
        arguments.gpus,
        arguments.hostfile,
        runs=max(len(trials), len(runs)),
        at_once=arguments.at_once,
    )
    if arguments.dry_run:
        first = [*[tried[0].trials[0] for tried in by_point], *runs[: len(sweep.arms)]]
        _describe(first, plans[0])
        return
    again = shell_command("sweep", *given_words(arguments))
    with locked(folder):
        print(describe_sweep(sweep, runs, trials, at_once=len(plans)))
        print(f"stop with Ctrl-C, continue with: {again}\n", flush=True)
        try:
            notes = _train(sweep, folder, plans)
        except SystemExit:
            print(f"Stopped. Continue with: {again}", file=sys.stderr)
            raise
        _compare(sweep, folder, notes)
    print(f"curves: {curves_command(folder)}\nagain: {again}")


def _train(sweep: Sweep, folder: Path, plans: list[LaunchPlan]) -> list[str]:
    """Tune and train; return notes on tuning."""
    by_point, by_arm = points_tried(sweep, folder), sweep.runs(folder)

    def train(groups: Sequence[Sequence[SweepRun]]) -> None:
        runs = _by_seed(groups)
        for run in runs:
            if run.has_begun:
                run.refuse_other_settings()
        if not all(run.is_finished for run in runs):
            first = sweep.arms[0]  # all arms share the shards
            words = [first.recipe, *first.command]
            prepare_data(first.settings, words, ranks=plans[0].ranks_here)
            begun = [launch for launch in (last_launch(run.folder) for run in runs) if launch]
            now = begun and held_out_fingerprint(open_data(first.settings), first.settings)
            if any(launch.held_out != now for launch in begun):
                raise ConfigError(
                    f"{folder} has runs with other held-out sequences than the shards have now; "
                    "restore those shards, or give another --name"
                )
            print(describe_time(runs, plans), "\n", flush=True)
        train_runs(runs, plans)

    notes: list[str] = []
    if by_point:
        train([one.trials for tried in by_point for one in tried])
        arms, notes = choose(sweep, by_point)
        print("\n".join(notes), "\n")
        by_arm = sweep.runs(folder, arms)
    train(by_arm)
    return notes


def _by_seed(groups: Sequence[Sequence[SweepRun]]) -> list[SweepRun]:
    """Return all runs; a sweep that is stopped early has the same seeds of all arms and points."""
    return [run for seed in zip(*groups, strict=True) for run in seed]


def _compare(sweep: Sweep, folder: Path, notes: list[str]) -> None:
    runs: list[str] = []
    for places in ([run.folder for run in arm] for arm in sweep.runs(folder)):
        lost = [str(place) for place in places if diverged_at_once(place)]
        if lost:  # without them the others would look better than the arm is
            notes.append(f"{', '.join(lost)} diverged before any evaluation: the arm is left out")
        else:
            runs += map(str, places)
    if len(runs) < 2:
        print("\n".join([*notes, "there is nothing to compare: that takes two runs"]))
        return
    for_notes = [word for note in notes for word in ("--note", note)]
    run_command(COMMANDS, ["compare", *runs, "--report", str(folder / REPORT), *for_notes])


def _folder(arguments: argparse.Namespace) -> Path:
    """Return runs/NAME; a sweep without a name gets one."""
    arguments.name = vars(arguments).get("name") or time.strftime("compare-%Y%m%d-%H%M%S")
    if not re.fullmatch(r"\w[\w.-]*", arguments.name):
        raise ConfigError(f"--name {arguments.name!r}: use letters, digits, and . _ - only")
    folder = Path("runs", arguments.name)
    if (folder / RUN_FILE).exists():
        command = shell_command("train", folder, "--resume")
        raise ConfigError(f"{folder} is a run, not a sweep; resume it with: {command}")
    return folder


def _describe(runs: list[SweepRun], plan: LaunchPlan) -> None:
    """Make the dry run of each run that is not finished, on the GPUs that it would have.

    Raises:
        SystemExit: one failed, and all were tried; or a signal asked to stop.
    """
    status = 0
    for run in runs:
        if run.is_finished:
            print(f"{run.folder.name}: finished before")
            continue
        ended = run_child(plan.child([*run.words, "--dry-run"]))
        if ended.stopped:
            sys.exit(ended.status)
        status = max(status, ended.status)
    if status:
        sys.exit(status)
