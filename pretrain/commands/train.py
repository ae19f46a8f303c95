"""Pre-train an encoder.

    tupelo train RECIPE                  on all GPUs of this machine, or its CPU
    tupelo train RECIPE --gpus 2         on the first two
    tupelo train runs/NAME --resume      continue from the newest checkpoint

Shards that are missing are built first. A launcher, such as torchrun, can start it too:

    torchrun --nproc-per-node 8 -m pretrain train RECIPE

Every setting of the recipe can be changed: --section.name value.
"""

import argparse
import functools
import sys
from pathlib import Path

from pretrain.checkpoint.lengthening import WAYS
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import CommandParser, add_settings, read_settings
from pretrain.distributed.processes import is_first_process, is_launched, launched_ranks
from pretrain.distributed.signals import Interruption
from pretrain.launching.given_words import given_words, setting_words
from pretrain.launching.launch_plan import OPTIONS, LaunchPlan, add_launch_options, plan_launch
from pretrain.launching.preparation import prepare_data
from pretrain.train.request import Beginning, RunRequest, folder_of

SET_BY_DS_CONFIG = ("layer_drop.",)  # by its block progressive_layer_drop; it is read later


def add_arguments(parser: CommandParser) -> None:
    """Add the options of `tupelo train`."""
    parser.add_argument(
        "--run-folder",
        type=Path,
        metavar="FOLDER",
        help="new or empty, or of a run; default: runs/NAME of the recipe",
    )
    parser.add_argument("--resume", action="store_true", help="continue from the newest checkpoint")
    parser.add_argument(
        "--elastic",
        action="store_true",
        help="like --resume, and on another number of ranks or with other --engine settings, such "
        "as another ZeRO stage: the same samples and rates, not bit for bit the same losses",
    )
    parser.add_argument(
        "--lengthen",
        choices=WAYS,
        help="with --resume and more --steps or --hours than before: follow the schedule of a run "
        "of that length from here on, or restart it for what is left",
    )
    add_launch_options(parser)
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="check all that a start checks, and print size, time and cost; status 1 if the run "
        "cannot start, 0 if it can, here or on a machine that has what it needs",
    )
    parser.add_argument(
        "--on",
        metavar="GPUS",
        help="with --dry-run: for these GPUs instead of this machine, such as 16xA100-SXM4-80GB, "
        "or 8x48GB:180 by memory and dense bf16 TFLOP/s",
    )
    parser.add_argument(
        "--show-settings", action="store_true", help="with --dry-run: all settings, as JSON"
    )
    parser.set_defaults(source=add_settings(parser))


def main(arguments: argparse.Namespace) -> None:
    """Train, or describe the run if --dry-run is given.

    Raises:
        SystemExit: a dry run found that the run cannot start.
    """
    if arguments.show_settings and not arguments.dry_run:
        raise ConfigError("--show-settings belongs to --dry-run; run.json of a run holds them")
    if arguments.on is not None and not arguments.dry_run:
        raise ConfigError("--on belongs to --dry-run; --gpus and --hostfile choose what trains")
    if arguments.on is not None and (arguments.gpus, arguments.hostfile) != (None, None):
        raise ConfigError("--on gives the GPUs already; remove --gpus and --hostfile, or --on")
    plan = plan_launch(arguments.gpus, arguments.hostfile)
    if arguments.dry_run:
        if is_first_process():
            _describe(arguments, launched_ranks() or plan.ranks)
        return
    if not is_launched():
        request = _announce(arguments)
        request.check_folder()
        request.check_settings(undecided=SET_BY_DS_CONFIG)
        if not request.is_finished:
            _prepare_and_launch(request, arguments, plan)
        plan.apply()
    with Interruption(prints=is_first_process()) as interruption:
        # Imported late: torch and DeepSpeed take seconds.
        from pretrain.train.start import start

        # The ranks of a launcher read the recipe together, so that an error is printed once.
        start(functools.partial(read_request, arguments), interruption)


def _describe(arguments: argparse.Namespace, ranks: int) -> None:
    request = _announce(arguments)
    from pretrain.train.checks import ranks_here
    from pretrain.train.summary import dry_run

    of_run = ranks_here(ranks, arguments.on)
    if not dry_run(request, of_run, show_settings=arguments.show_settings):
        sys.exit(1)


def _prepare_and_launch(
    request: RunRequest, arguments: argparse.Namespace, plan: LaunchPlan
) -> None:
    """Build shards that are missing; end with the ranks of a launcher where several train.

    Raises:
        SystemExit: other processes have trained, or the shards could not be built.
        ConfigError: they ended without a result.
    """
    prepare_data(request.settings, setting_words(arguments), ranks=plan.ranks_here)
    if not plan.is_one_process:
        plan.train(given_words(arguments, without=OPTIONS), request.folder)
        sys.exit()


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
    settings = read_settings(arguments, arguments.source)
    beginning: Beginning = "resume" if arguments.resume else "start"
    return RunRequest(
        settings,
        folder_of(arguments.run_folder, arguments.recipe, settings),
        "elastic" if arguments.elastic else beginning,
        arguments.lengthen,
    )
