"""Show where the time of a training step goes: by phase, by operator, and as a trace.

    tupelo profile RECIPE                       five steps on this machine
    tupelo profile RECIPE --steps 20 --full-depth

Any setting can be changed; --steps is the number of traced steps. Blocks are skipped as often as at
the end of the run. Sequences are real where the shards exist, else random, at the same cost.
"""

import argparse
from pathlib import Path

from data_prep.command_line import CommandParser
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import add_settings, read_settings
from pretrain.distributed.processes import is_launched

TRACED_STEPS = 5


def add_arguments(parser: CommandParser) -> None:
    """Add the options of `tupelo profile`."""
    parser.add_argument("--to", type=Path, help="folder; default: profiles/NAME")
    parser.add_argument("--full-depth", action="store_true", help="run every block at every step")
    add_settings(parser)


def main(arguments: argparse.Namespace) -> None:
    """Trace the steps, print a table, and write the trace."""
    count = take_count(arguments)
    if not is_launched():  # wrong settings are refused before torch is imported
        read_settings(arguments)
    from pretrain.train.profile import profile

    profile(
        lambda: read_settings(arguments),
        count,
        full_depth=arguments.full_depth,
        to=arguments.to,
    )


def take_count(arguments: argparse.Namespace) -> int:
    """Return the number of traced steps, and take it from the settings of the run.

    Raises:
        ConfigError: it is not a positive number.
    """
    given = str(vars(arguments).pop("steps", TRACED_STEPS))
    if not given.isdecimal() or int(given) == 0:
        raise ConfigError(f"--steps {given} must be a number of steps to trace, at least 1")
    return int(given)
