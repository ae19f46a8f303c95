"""Show where the time of a training step goes: by phase, by operator, and as a trace.

    tupelo profile RECIPE                       five steps on this machine
    tupelo profile RECIPE --traced 20

Any setting can be changed. Blocks are skipped as often as on average over the run. Sequences are
real where the shards exist, else random, at the same cost.
"""

import argparse
from pathlib import Path

from data_prep.command_line import CommandParser
from data_prep.commands.options import at_least_1
from pretrain.config.recipe import add_settings, read_settings
from pretrain.distributed.processes import is_launched

TRACED_STEPS = 5


def add_arguments(parser: CommandParser) -> None:
    """Add the options of `tupelo profile`."""
    parser.add_argument("--to", type=Path, help="folder; default: profiles/NAME")
    parser.add_argument(
        "--traced",
        type=at_least_1,
        default=TRACED_STEPS,
        metavar="N",
        help=f"optimizer steps (default: {TRACED_STEPS})",
    )
    add_settings(parser)


def main(arguments: argparse.Namespace) -> None:
    """Trace the steps, print a table, and write the trace."""
    if not is_launched():  # wrong settings are refused before torch is imported
        read_settings(arguments)
    from pretrain.train.profile import profile

    profile(lambda: read_settings(arguments), arguments.traced, arguments.to)
