"""Train several recipes, each with several seeds, one after the other, and compare them.

    tupelo sweep                               bert_a, bert_r, tupe_r and tupe_r_pld
    tupelo sweep bert_a mine.toml --seeds 3    two arms with three seeds each
    tupelo sweep --resume --name NAME          continue where it was stopped

The first recipe is the baseline. The runs go to runs/NAME, with a report. Every setting can be
changed for all arms: --section.name value.
"""

import argparse
import shlex
import sys
import time

from data_prep.files.program import curves_command
from pretrain.commands.catalog import COMMANDS
from pretrain.commands.command_line import run_command
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import CommandParser, add_settings
from pretrain.distributed.processes import is_launched
from pretrain.launching.child import run_child, trainer_words
from pretrain.launching.given_words import given_words
from pretrain.launching.launch_plan import OPTIONS, add_launch_options, plan_launch
from pretrain.launching.sweep import Sweep, SweepFolder, SweepRun, train


def add_arguments(parser: CommandParser) -> None:
    """Add the options of `tupelo sweep`."""
    parser.add_argument(
        "--seeds",
        nargs="+",
        type=int,
        metavar="N",
        help="one number: so many seeds, from that of the recipe or --seed on; several: these",
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
    plan = plan_launch(arguments.gpus, arguments.hostfile)
    folder = _folder(arguments)
    sweep = _resumed(folder, arguments) if arguments.resume else Sweep(arguments)
    by_arm = sweep.runs(folder.path)
    if arguments.dry_run:
        _describe([runs[0] for runs in by_arm])
        return
    sweep.prepare(ranks=plan.ranks_here)
    folder.save_words(sweep.words)
    launch_words = given_words(arguments, without=vars(arguments).keys() - set(OPTIONS))
    again = folder.resume_command(launch_words)
    try:
        # By seed: a sweep that is stopped early has the same seeds of all arms.
        train([run for seed in zip(*by_arm, strict=True) for run in seed], plan)
    except ConfigError as error:
        raise ConfigError(f"{error}; continue with: {again}") from None
    except SystemExit:
        print(f"Stopped. Continue with: {again}", file=sys.stderr)
        raise
    report = folder.path / "report"
    runs = [str(run.folder) for arm in by_arm for run in arm]
    run_command(COMMANDS, ["compare", *runs, "--report", str(report)], habits={})
    print(f"Report: {report} | curves: {curves_command(folder.path)} | again: {again}")


def _folder(arguments: argparse.Namespace) -> SweepFolder:
    name = vars(arguments).get("name")
    if arguments.resume and name is None:
        raise ConfigError("--resume needs the --name of the sweep; see runs/")
    folder = SweepFolder(name or time.strftime("compare-%Y%m%d-%H%M%S"))
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
        ended = run_child(trainer_words(*words))
        status = max(status, ended.status)
        if ended.stopped:
            break
    if status:
        sys.exit(status)
