"""Build the shards that a recipe needs, unless they are there."""

import argparse

from data_prep.pipeline.build import build
from pretrain.config.recipe import add_settings, read_settings
from pretrain.data.shards import build_settings, shards_folder
from pretrain.launching.preparation import describe_data, must_build


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tupelo prepare`."""
    parser.set_defaults(source=add_settings(parser))


def main(arguments: argparse.Namespace) -> None:
    """Build the shards of the recipe, or check that the existing ones fit it."""
    settings = read_settings(arguments, arguments.source)
    if must_build(settings):
        if settings.initial_weights is not None:
            from pretrain.convert.initial_weights import check_before_build

            check_before_build(settings)
        build(build_settings(settings), shards_folder(settings))
    print(describe_data(settings))
