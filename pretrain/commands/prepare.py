"""Build the shards that a recipe needs, unless they are there."""

import argparse

from pretrain.config.recipe import CommandParser, add_settings, read_settings


def add_arguments(parser: CommandParser) -> None:
    """Add the options of `tupelo prepare`."""
    parser.set_defaults(source=add_settings(parser))


def main(arguments: argparse.Namespace) -> None:
    """Build the shards of the recipe, or check that the existing ones fit it."""
    settings = read_settings(arguments, arguments.source)
    # Imported late: torch takes seconds.
    from pretrain.train.prepare import prepare

    print(prepare(settings))
