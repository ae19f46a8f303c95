"""List the recipes, with a line each.

    tupelo recipes

A recipe is a TOML file with the settings of a run. `tupelo train NAME` takes these names, or the
path of a .toml file of your own, which may begin with: extends = "NAME"
"""

import argparse

from pretrain.config.recipe import list_of_recipes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no options."""


def main(arguments: argparse.Namespace) -> None:
    """Print names and summaries, as wide as the terminal."""
    print(list_of_recipes())
