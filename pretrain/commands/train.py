"""Pre-train an encoder.

    tupelo train RECIPE                         one process, on a GPU or a CPU
    deepspeed --module pretrain train RECIPE    all GPUs of this machine
    tupelo train runs/NAME --resume             from its newest checkpoint

Every setting of the recipe can be changed: --section.name value.
"""

import argparse
import sys
from pathlib import Path

from pretrain.checkpoint.lengthening import WAYS
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import CommandParser, add_settings, read_settings
from pretrain.distributed.processes import is_first_process, is_launched
from pretrain.distributed.signals import Interruption
from pretrain.train.request import Beginning, RunRequest, folder_of


def add_arguments(parser: CommandParser) -> None:
    """Add the options of `tupelo train`."""
    parser.add_argument("--run-folder", type=Path, help="default: runs/NAME of the recipe")
    parser.add_argument("--resume", action="store_true", help="continue from the newest checkpoint")
    parser.add_argument(
        "--elastic",
        action="store_true",
        help="like --resume, and on another number of ranks or with other --engine settings, such "
        "as another ZeRO stage: equal within rounding",
    )
    parser.add_argument(
        "--lengthen",
        choices=WAYS,
        help="with --resume and more --steps or --hours than before: follow the schedule of a run "
        "of that length from here on, or restart it for what is left",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="check all that a start checks, and print size, time and cost; status 1 if the run "
        "cannot start here",
    )
    parser.add_argument(
        "--show-settings", action="store_true", help="with --dry-run: all settings, as JSON"
    )
    parser.set_defaults(source=add_settings(parser))


def main(arguments: argparse.Namespace) -> None:
    """Train, or describe the run if --dry-run is given.

    Raises:
        SystemExit: a dry run found that the run cannot start here.
    """
    if arguments.show_settings and not arguments.dry_run:
        raise ConfigError("--show-settings belongs to --dry-run; run.json of a run holds them")
    if arguments.dry_run:
        _announce(arguments)
        # Imported late, as below: torch and DeepSpeed take seconds.
        from pretrain.train.summary import dry_run

        if not dry_run(lambda: read_request(arguments), show_settings=arguments.show_settings):
            sys.exit(1)
        return
    with Interruption(prints=is_first_process()) as interruption:
        request = _announce(arguments)
        if request is not None:
            request.check_folder()
        from pretrain.train.start import start

        start(lambda: read_request(arguments), interruption)


def _announce(arguments: argparse.Namespace) -> RunRequest | None:
    """Print the first line; None for ranks, which read the recipe together: an error once."""
    if is_launched():
        return None
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
