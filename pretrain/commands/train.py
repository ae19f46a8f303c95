"""Pre-train an encoder.

    tupelo train RECIPE                  on all GPUs of this machine, or its CPU
    tupelo train RECIPE --gpus 2         on the first two
    tupelo train runs/NAME --resume      continue from the newest checkpoint

Missing shards are built first. A launcher such as torchrun can start it too:

    torchrun --nproc-per-node 8 -m pretrain train RECIPE

Any setting can be changed: --section.name value.
"""

import argparse
import functools
import math
import sys
from pathlib import Path

from data_prep.command_line import CommandParser
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import add_settings, read_settings
from pretrain.distributed.processes import is_first_process, is_launched, launched_ranks
from pretrain.distributed.signals import Interruption
from pretrain.train.launching.child import run_child
from pretrain.train.launching.given_words import given_words, setting_words
from pretrain.train.launching.launch_plan import (
    OPTIONS,
    LaunchPlan,
    add_launch_options,
    plan_launch,
)
from pretrain.train.launching.preparation import prepare_data
from pretrain.train.request import Beginning, RunRequest, folder_of


def add_arguments(parser: CommandParser) -> None:
    """Add the options of `tupelo train`."""
    parser.add_argument(
        "--run-folder",
        type=Path,
        metavar="FOLDER",
        help="a new, empty or run folder; default: runs/NAME",
    )
    parser.add_argument("--resume", action="store_true", help="continue from the newest checkpoint")
    parser.add_argument(
        "--elastic",
        action="store_true",
        help="like --resume, but allows another number of ranks, ZeRO stage or other --engine "
        "settings: the same samples and learning rates, losses equal but for rounding and dropout",
    )
    parser.add_argument(
        "--lengthen",
        action="store_true",
        help="with --resume and more --steps: continue on the schedule of a run of that length",
    )
    add_launch_options(parser)
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="make every check of a start, and print size, memory and FLOPs; exit status 1 if no "
        "machine can start it",
    )
    parser.add_argument(
        "--on", metavar="GPUS", help="with --dry-run: on these GPUs, such as 16xA100-SXM4-80GB"
    )
    parser.add_argument(
        "--measure",
        type=float,
        metavar="SECONDS",
        help="with --dry-run: take optimizer steps here for this long, and print time and cost",
    )
    add_settings(parser)


def main(arguments: argparse.Namespace) -> None:
    """Train, or describe the run if --dry-run is given.

    Raises:
        SystemExit: a dry run found that the run cannot start, other processes have trained, or the
            shards could not be built.
        ConfigError: the run cannot start, or these processes ended without a result.
    """
    _refuse_wrong_uses(arguments)
    plan = plan_launch(arguments.gpus, arguments.hostfile)
    if arguments.dry_run:
        if not _is_startable(arguments, plan):
            sys.exit(1)
        return
    if not is_launched():
        request = _announce(arguments)
        request.check_folder()
        request.check_settings()
        if not request.is_finished:
            words = setting_words(arguments)
            prepare_data(request.settings, words, ranks=plan.ranks_here)
            if plan.launcher:
                plan.train(given_words(arguments, without=OPTIONS), request.folder)
                sys.exit()
        plan.apply()
    with Interruption(prints=is_first_process()) as interruption:
        # Imported late: torch and DeepSpeed take seconds.
        from pretrain.train.start import start

        # The ranks of a launcher read the recipe together, so that an error is printed once.
        start(functools.partial(read_request, arguments), interruption)


def _refuse_wrong_uses(arguments: argparse.Namespace) -> None:
    on, seconds = arguments.on, arguments.measure
    for option, value in (("--on", on), ("--measure", seconds)):
        if value is not None and not arguments.dry_run:
            raise ConfigError(f"{option} belongs to --dry-run: add that, or leave {option} out")
    if on is not None and (arguments.gpus, arguments.hostfile) != (None, None):
        raise ConfigError("--on gives the GPUs already; remove --gpus and --hostfile, or --on")
    if seconds is not None and on is not None:
        raise ConfigError("--measure takes steps here, and --on is for other GPUs; leave out one")
    if seconds is not None and not 0 < seconds < math.inf:
        raise ConfigError(f"--measure {seconds:g}: give a number above 0, such as 60")


def _is_startable(arguments: argparse.Namespace, plan: LaunchPlan) -> bool:
    """Describe the run, after a measurement by all of its ranks if one is asked for."""
    if arguments.measure is None:
        if not is_first_process():
            return True
        request = _announce(arguments)
        from pretrain.train.checks import ranks_here
        from pretrain.train.dry_run import dry_run

        ranks = ranks_here(launched_ranks() or plan.ranks, arguments.on)
        return dry_run(request, ranks)
    if plan.launcher:
        words = given_words(arguments, without=OPTIONS)
        return not run_child(plan.child(["train", *words])).status
    plan.apply()
    announced = _announce(arguments) if is_first_process() else None
    from pretrain.train.dry_run import measured_dry_run

    return measured_dry_run(announced, arguments.measure)


def _announce(arguments: argparse.Namespace) -> RunRequest:
    """Print the first line."""
    request = read_request(arguments)
    print(request.describe(), flush=True)
    return request


def read_request(arguments: argparse.Namespace) -> RunRequest:
    """Read the recipe, and what the command line asks for.

    Raises:
        ConfigError: the recipe or a setting does not exist, or they do not go together.
    """
    settings = read_settings(arguments)
    beginning: Beginning = "resume" if arguments.resume else "start"
    return RunRequest(
        settings,
        folder_of(arguments.run_folder, arguments.recipe, settings),
        "elastic" if arguments.elastic else beginning,
        arguments.lengthen,
    )
