"""List the recipes, with a line each.

    tupelo recipes

A recipe is a TOML file with the settings of a run. `tupelo train NAME` takes these names, or the
path of a .toml file of your own, which may begin with: extends = "NAME"
"""

import argparse
import shutil
import textwrap

from pretrain.config.recipe import recipe_summaries


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no options."""


def main(arguments: argparse.Namespace) -> None:
    """Print names and summaries, as wide as the terminal."""
    print(list_of_recipes())


def list_of_recipes() -> str:
    """Return names and summaries as text, wrapped to the width of the terminal."""
    summaries = recipe_summaries()
    indent = max(map(len, summaries)) + 2
    columns = shutil.get_terminal_size().columns
    return "\n".join(
        textwrap.fill(f"{name:{indent}}{summary}", columns, subsequent_indent=" " * indent)
        for name, summary in summaries.items()
    )
