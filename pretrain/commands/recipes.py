"""List the recipes, below those that they extend, and the sweeps.

    tupelo recipes

A recipe is a TOML file of settings. RECIPE is one of these names, or the path of your own file.
"""

import argparse

from data_prep.files.program import shell_command
from pretrain.config.recipe_files import first_comment, list_of_recipes, sweep_files
from pretrain.reports.words import paragraph, terminal_width


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no options."""


def main(arguments: argparse.Namespace) -> None:
    """Print names and summaries, as wide as the terminal."""
    print(list_of_recipes())
    print(f"\nSweeps of several recipes, for {shell_command('sweep')}:\n")
    files = sweep_files()
    indent = max(map(len, files)) + 2
    for name, file in files.items():
        first = f"{name:{indent}}"
        print(paragraph(first_comment(file), terminal_width(), first=first, rest=" " * indent))
    print(f"\n{shell_command('train', 'RECIPE', '--help')} lists all settings of one.")
