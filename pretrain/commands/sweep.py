"""Train several arms, each with several seeds, and compare them.

    tupelo sweep                              bert_a, bert_r, tupe_r, tupe_r_pld
    tupelo sweep bert_a mine.toml --seeds 3   two arms with three seeds each
    tupelo sweep theta_bar                    the arms and seeds of a spec
    tupelo sweep --hours 2                    two hours for each run
    tupelo sweep --smoke                      all of it, tiny, in a minute
    tupelo sweep --resume --name NAME         continue where it was stopped

The first arm is the baseline. Runs and report go to runs/NAME. Several GPUs are divided evenly
among runs. Any setting can be changed for all arms: --section.name value. A spec is one that
tupelo recipes lists, or your own .toml file:

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
import shlex
import sys
import time
from pathlib import Path

from data_prep.command_line import CommandParser, run_command
from data_prep.files.errors import UserError
from data_prep.files.program import curves_command
from pretrain.commands.catalog import COMMANDS
from pretrain.compare.run_files import diverged_at_once
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import add_settings
from pretrain.distributed.processes import is_launched
from pretrain.launching.child import Child, run_child, trainer_words
from pretrain.launching.given_words import given_words
from pretrain.launching.launch_plan import (
    OPTIONS,
    LaunchPlan,
    add_launch_options,
    plan_launches,
    refuse_wrong_on,
)
from pretrain.launching.preparation import BuildFailed
from pretrain.launching.sweeps.arms import SweepRun
from pretrain.launching.sweeps.description import describe_sweep
from pretrain.launching.sweeps.folder import REPORT, SweepFolder
from pretrain.launching.sweeps.records import Records
from pretrain.launching.sweeps.smoke import NOTE
from pretrain.launching.sweeps.sweep import Sweep
from pretrain.launching.sweeps.training import train_all
from pretrain.launching.sweeps.tuning import first_trials
from pretrain.reports.words import listed

OF_MACHINE = (*OPTIONS, "at_once", "records")  # and not of the sweep: a resume can have others


def add_arguments(parser: CommandParser) -> None:
    """Add the options of `tupelo sweep`."""
    parser.add_argument(
        "--seeds",
        nargs="+",
        type=_seed,
        metavar="N",
        help="a count (3) or a list (4 8 9)",
    )
    parser.add_argument(
        "--smoke",
        action="store_true",
        help="test in a minute that everything works: tiny arms, a small text",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="continue the sweep of this --name",
    )
    parser.add_argument(
        "--budget",
        metavar="UNIT[=AMOUNT]",
        help="give all arms equal steps, tokens, flops or seconds: AMOUNT, or those of the "
        "baseline",
    )
    parser.add_argument(
        "--records",
        type=Path,
        metavar="FOLDER",
        help="keep 10 to 100 kB of each finished run there, enough for a comparison; --resume on "
        "another machine skips these runs",
    )
    parser.add_argument(
        "--at-once",
        type=_number,
        metavar="N",
        help="train N runs at once (default: one per GPU; on a CPU one)",
    )
    add_launch_options(parser)
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="make every check of a start, and print size, time and cost of each arm",
    )
    parser.add_argument(
        "--on",
        metavar="GPUS",
        help="with --dry-run: each run on these GPUs, as in tupelo train",
    )
    add_settings(parser, recipe_nargs="*")


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text}: give whole numbers, such as: --seeds 1 2 3")
    return int(text)


def _number(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text}: give a number of runs, such as 2")
    return int(text)


def main(arguments: argparse.Namespace) -> None:
    """Train what is not finished, then compare.

    Raises:
        ConfigError: a setting, a name or a machine does not exist, or a run has no result.
        SystemExit: a run failed, or a signal asked to stop.
    """
    _refuse_wrong_uses(arguments)
    folder = _folder(arguments)
    records = _records(folder, arguments)
    sweep = _resumed(folder, arguments) if arguments.resume else Sweep(arguments)
    by_arm = sweep.runs(folder.path)
    tuning = sweep.spec.tuning
    trials = first_trials(sweep, tuning, folder.path) if tuning else []
    most = len(trials) * len(tuning.points) * tuning.seeds if tuning else 0
    plans = _plans(folder, arguments, runs=max(most, sum(map(len, by_arm))))
    if arguments.dry_run:
        _describe([*trials, *(runs[0] for runs in by_arm)], arguments.on)
        return
    again = folder.resume_command(
        given_words(arguments, without=vars(arguments).keys() - set(OF_MACHINE))
    )
    print(describe_sweep(sweep, by_arm, folder=folder.path, plans=plans))
    print(f"stop with Ctrl-C, continue with: {again}\n", flush=True)
    _prepare(sweep, folder, by_arm, plans[0])
    try:
        notes = train_all(sweep, folder, plans, records)
    except ConfigError as error:
        raise ConfigError(f"{error}; continue with: {again}") from None
    except SystemExit:
        print(f"Stopped. Continue with: {again}", file=sys.stderr)
        raise
    _compare(sweep, by_arm, folder, notes)
    print(f"curves: {curves_command(folder.path)}\nagain: {again}")


def _refuse_wrong_uses(arguments: argparse.Namespace) -> None:
    if is_launched():
        raise ConfigError(
            "a sweep starts the launcher of its runs itself (--gpus, --hostfile), but this process "
            "has one already; start it without, or: unset RANK"
        )
    refuse_wrong_on(arguments)


def _records(folder: SweepFolder, arguments: argparse.Namespace) -> Records | None:
    """Return the folder of records that was asked for; bring what a resume finds there."""
    if arguments.records is None:
        return None
    records = Records(arguments.records, folder)
    if not arguments.resume:
        records.refuse_if_taken()
    elif not arguments.dry_run:
        records.bring()
    return records


def _plans(folder: SweepFolder, arguments: argparse.Namespace, *, runs: int) -> list[LaunchPlan]:
    """Return how runs are started, as many at once as there are plans.

    Raises:
        ConfigError: a machine or a GPU does not exist, or the runs were begun on more GPUs.
    """
    each = folder.gpus_per_run()
    return plan_launches(
        arguments.gpus,
        arguments.hostfile,
        runs=runs,
        gpus_per_run=each,
        at_once=arguments.at_once,
    )


def _prepare(
    sweep: Sweep, folder: SweepFolder, by_arm: list[list[SweepRun]], plan: LaunchPlan
) -> None:
    """Build what is missing; a build that is stopped prints how to continue."""
    folder.save(sweep.words, sweep.spec.file)
    if all(run.is_finished for runs in by_arm for run in runs):
        return
    try:
        sweep.prepare(ranks=plan.ranks_here)
    except (UserError, BuildFailed):
        folder.forget_words()
        raise
    if plan.ranks_here is not None:
        folder.save_gpus_per_run(plan.ranks_here)


def _compare(
    sweep: Sweep, by_arm: list[list[SweepRun]], folder: SweepFolder, notes: list[str]
) -> None:
    every = [run.folder for arm in by_arm for run in arm]
    if len(every) == 1:
        print("one run: there is nothing to compare; name several recipes, or give --seeds 2")
        return
    lost = [folder for folder in every if diverged_at_once(folder)]
    runs = [str(folder) for folder in every if folder not in lost]
    if len(runs) < 2:
        print(f"{listed([folder.name for folder in lost])} diverged: there is nothing to compare")
        return
    notes = [
        *(f"{folder} diverged before its first evaluation: left out" for folder in lost),
        *notes,
    ]
    if sweep.is_smoke_test:
        notes = [f"this is {NOTE}", *notes]
    for_notes = [word for note in notes for word in ("--note", note)]
    words = ["compare", *runs, "--report", str(folder.path / REPORT), *for_notes]
    run_command(COMMANDS, words)
    if sweep.is_smoke_test:
        print(f"this was {NOTE}")


def _folder(arguments: argparse.Namespace) -> SweepFolder:
    name = vars(arguments).get("name")
    if arguments.resume and name is None:
        raise ConfigError("--resume needs the --name of the sweep; see runs/")
    kind = "smoke" if arguments.smoke else "compare"
    folder = SweepFolder(name or time.strftime(f"{kind}-%Y%m%d-%H%M%S"))
    if not arguments.resume:
        folder.check_is_new()
    return folder


def _resumed(folder: SweepFolder, arguments: argparse.Namespace) -> Sweep:
    """Return the sweep as it was started: later runs must have the settings of the first."""
    given = Sweep(arguments)
    before = Sweep(arguments.parser.parse_args(folder.saved_words()))
    if not given_words(arguments, without=("name", "resume", "dry_run", "on", *OF_MACHINE)):
        return before
    if folder.has_begun and not given.asks_for_the_runs_of(before):
        raise ConfigError(
            f"{folder.path} was started with other arms or settings "
            f"({shlex.join(before.words)}); give these, or none"
        )
    return given


def _describe(runs: list[SweepRun], on: str | None) -> None:
    status, elsewhere = 0, [] if on is None else ["--on", on]
    for run in runs:
        if run.is_finished:
            print(f"{run.folder.name}: finished before")
            continue
        again = ["--resume"] if run.has_begun else []
        words = ["train", run.recipe, *run.words, "--run-folder", str(run.folder), *again]
        ended = run_child(Child(trainer_words(*words, "--dry-run", *elsewhere)))
        status = max(status, ended.status)
        if ended.stopped:
            break
    if status:
        sys.exit(status)
