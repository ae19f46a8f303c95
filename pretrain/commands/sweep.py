"""Train several recipes, each with several seeds, and compare them.

    tupelo sweep                              bert_a, bert_r, tupe_r, tupe_r_pld
    tupelo sweep bert_a mine.toml --seeds 3   two arms with three seeds each
    tupelo sweep --hours 2                    two hours for each run
    tupelo sweep --smoke                      all of it, tiny, in a minute
    tupelo sweep --resume --name NAME         continue where it was stopped

The first recipe is the baseline. The runs go to runs/NAME, with a report: one after the other, or
on several GPUs as many at once as there are, with equally many each. Every setting can be changed
for all arms: --section.name value.
"""

import argparse
import shlex
import sys
import time

from data_prep.files.errors import UserError
from data_prep.files.program import curves_command
from pretrain.commands.catalog import COMMANDS
from pretrain.commands.command_line import run_command
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import CommandParser, add_settings
from pretrain.distributed.processes import is_launched
from pretrain.launching.sweeps.announcement import describe_sweep, describe_time
from pretrain.launching.child import Child, run_child, trainer_words
from pretrain.launching.sweeps.forecast import Forecast, forecast_of
from pretrain.launching.given_words import given_words
from pretrain.launching.launch_plan import OPTIONS, LaunchPlan, add_launch_options, plan_launches
from pretrain.launching.preparation import BuildFailed
from pretrain.launching.sweeps.smoke import NOTE
from pretrain.launching.sweeps.sweep import Sweep, SweepRun
from pretrain.launching.sweeps.folder import REPORT, SweepFolder
from pretrain.launching.sweeps.training import SweepTraining
from pretrain.reports.terminal import terminal_width


def add_arguments(parser: CommandParser) -> None:
    """Add the options of `tupelo sweep`."""
    parser.add_argument(
        "--seeds",
        nargs="+",
        type=_seed,
        metavar="N",
        help="one number: so many seeds, from that of the recipe or --seed on; several: these",
    )
    parser.add_argument(
        "--smoke",
        action="store_true",
        help="see in a minute that everything works: tiny arms, a small text; the numbers mean "
        "nothing",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="continue the sweep of this --name, with the arms and settings that it has",
    )
    add_launch_options(parser)
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="check all that a start checks, and print size, time and cost of each arm",
    )
    parser.set_defaults(source=add_settings(parser, recipe_nargs="*"))


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text}: give whole numbers, such as: --seeds 1 2 3")
    return int(text)


def main(arguments: argparse.Namespace) -> None:
    """Train what is not finished, then compare.

    Raises:
        ConfigError: a setting, a name or a machine does not exist, or a run has no result.
        SystemExit: a run failed, or a signal asked to stop.
    """
    if is_launched():
        raise ConfigError(
            "a sweep starts the launcher of its runs itself (--gpus, --hostfile), but this process "
            "has one already; start it without, or: unset RANK"
        )
    folder = _folder(arguments)
    sweep = _resumed(folder, arguments) if arguments.resume else Sweep(arguments)
    by_arm = sweep.runs(folder.path)
    plans = _plans(folder, arguments, runs=sum(map(len, by_arm)))
    if arguments.dry_run:
        _describe([runs[0] for runs in by_arm])
        return
    again = folder.resume_command(
        given_words(arguments, without=vars(arguments).keys() - set(OPTIONS))
    )
    width = terminal_width()
    print(describe_sweep(sweep, by_arm, folder=folder.path, at_once=len(plans), width=width))
    print(f"it can be stopped at any time (Ctrl-C), and continued with: {again}\n", flush=True)
    _prepare(sweep, folder, plans[0])
    # By seed: a sweep that is stopped early has the same seeds of all arms.
    runs = [run for seed in zip(*by_arm, strict=True) for run in seed]
    try:
        _train(sweep, runs, plans)
    except ConfigError as error:
        raise ConfigError(f"{error}; continue with: {again}") from None
    except SystemExit:
        print(f"Stopped. Continue with: {again}", file=sys.stderr)
        raise
    _compare(sweep, by_arm, folder)
    print(f"curves: {curves_command(folder.path)}\nagain: {again}")


def _plans(folder: SweepFolder, arguments: argparse.Namespace, *, runs: int) -> list[LaunchPlan]:
    """Return how runs are started, as many at once as there are plans.

    Raises:
        ConfigError: a machine or a GPU does not exist, or the runs were begun on more GPUs.
    """
    each = folder.gpus_per_run()
    if each is None and folder.has_begun:
        runs = 1  # begun when every run had all GPUs
    return plan_launches(arguments.gpus, arguments.hostfile, runs=runs, gpus_per_run=each)


def _prepare(sweep: Sweep, folder: SweepFolder, plan: LaunchPlan) -> None:
    """Build what is missing; a build that is stopped prints how to continue."""
    folder.save_words(sweep.words)
    try:
        sweep.prepare(ranks=plan.ranks_here)
    except (UserError, BuildFailed):
        folder.forget_words()
        raise
    if plan.ranks_here is not None:
        folder.save_gpus_per_run(plan.ranks_here)


def _train(sweep: Sweep, runs: list[SweepRun], plans: list[LaunchPlan]) -> None:
    forecast = Forecast({})
    if not sweep.is_smoke_test:
        forecast = forecast_of(runs, sweep.setting_words, plans[0])
        if time_left := describe_time(forecast, runs, at_once=len(plans), width=terminal_width()):
            print(time_left)
    SweepTraining(runs, plans, forecast).train()


def _compare(sweep: Sweep, by_arm: list[list[SweepRun]], folder: SweepFolder) -> None:
    runs = [str(run.folder) for arm in by_arm for run in arm]
    if len(runs) == 1:
        print("one run: there is nothing to compare; name several recipes, or give --seeds 2")
        return
    note = ["--note", f"this is {NOTE}"] if sweep.is_smoke_test else []
    words = ["compare", *runs, "--report", str(folder.path / REPORT), *note]
    run_command(COMMANDS, words, habits={})
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
    saved, given = folder.saved_words(), Sweep(arguments)
    if saved is None:
        return given
    before = Sweep(arguments.source.root_parser.parse_args(saved))
    if not given_words(arguments, without=("name", "resume", "dry_run", *OPTIONS)):
        return before
    if folder.has_begun and given.words != before.words:
        raise ConfigError(
            f"{folder.path} was started with other arms or settings "
            f"({shlex.join(before.words)}); give these, or none"
        )
    return given


def _describe(runs: list[SweepRun]) -> None:
    status = 0
    for run in runs:
        words = ["train", run.recipe, *run.words, "--run-folder", str(run.folder), "--dry-run"]
        ended = run_child(Child(trainer_words(*words)))
        status = max(status, ended.status)
        if ended.stopped:
            break
    if status:
        sys.exit(status)
