"""Restore damaged files of a shard folder from its corpus.

Builds the folder again from the corpus that its manifest names, and replaces what is damaged or
missing. Changes nothing if the text has changed since.
"""

import argparse

from data_prep.commands.options import add_folder, add_workers


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tupelo data repair`."""
    add_folder(parser)
    add_workers(parser)


def main(arguments: argparse.Namespace) -> None:
    """Repair the folder, and print what was restored."""
    from data_prep.tools.repair import repair

    restored = repair(arguments.folder, workers=arguments.workers)
    done = f"restored {', '.join(restored)}" if restored else "nothing to repair"
    print(f"{arguments.folder}: {done}")
