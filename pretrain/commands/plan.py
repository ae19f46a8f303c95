"""Estimate how long a run takes on this machine, or how many steps fit into given hours.

    tupelo plan RECIPE --hours 24                what fits into 24 hours
    tupelo plan RECIPE                           how long its own steps take
    tupelo plan bert_a mine.toml                 how long each takes, as a table
    torchrun --nproc-per-node 8 -m pretrain plan RECIPE ...  on so many ranks

Takes optimizer steps for about a minute, and writes nothing but the --json file.
"""

import argparse
import math
from pathlib import Path

from data_prep.files.program import shell_command
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import CommandParser, add_settings, read_settings
from pretrain.config.settings import RunSettings
from pretrain.distributed.processes import is_launched


def add_arguments(parser: CommandParser) -> None:
    """Add the options of `tupelo plan`."""
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="of training to measure (default: 60)"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the seconds per step of each recipe too"
    )
    parser.add_argument("--on", help=argparse.SUPPRESS)  # of other commands: see main
    parser.set_defaults(source=add_settings(parser, recipe_nargs="+"))


def main(arguments: argparse.Namespace) -> None:
    """Measure the speed, and print the plan and the commands that train it."""
    if arguments.on is not None:
        command = shell_command("train", arguments.recipe[0], "--dry-run", "--on", arguments.on)
        raise ConfigError(f"this measures here; an estimate for other GPUs: {command}")
    if not 0 < arguments.seconds < math.inf:
        raise ConfigError(f"--seconds {arguments.seconds:g}: give a number above 0, such as 60")
    if not is_launched():  # wrong settings are refused before torch is imported
        _read(arguments)
    from pretrain.train.plan import plan

    plan(lambda: _read(arguments), arguments)


def _read(arguments: argparse.Namespace) -> dict[str, RunSettings]:
    return {
        recipe: read_settings(
            argparse.Namespace(**{**vars(arguments), "recipe": recipe}), arguments.source
        )
        for recipe in arguments.recipe
    }
