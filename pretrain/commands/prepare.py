"""Build the shards that a recipe needs, unless they exist."""

import argparse

from data_prep.command_line import CommandParser
from data_prep.commands.options import at_least_1
from data_prep.pipeline.build import build
from pretrain.config.recipe import add_settings, read_settings
from pretrain.data.shards import build_settings, shards_folder
from pretrain.train.launching.preparation import describe_data, must_build


def add_arguments(parser: CommandParser) -> None:
    """Add the options of `tupelo prepare`."""
    parser.add_argument(
        "--ranks",
        type=at_least_1,
        metavar="N",
        help="also refuse what N processes could not run on this machine",
    )
    add_settings(parser)


def main(arguments: argparse.Namespace) -> None:
    """Build the shards of the recipe, or check that the existing ones fit it."""
    settings = read_settings(arguments)
    if must_build(settings):
        # Imported late: torch takes seconds.
        from pretrain.engine.launch import checked_ds_config
        from pretrain.train.checks import check_data, check_this_machine, ranks_here

        if arguments.ranks is not None:
            ranks = ranks_here(arguments.ranks)
            check_this_machine(settings, checked_ds_config(settings, ranks), ranks)
        check_data(settings)
        build(build_settings(settings), shards_folder(settings))
    print(describe_data(settings))
