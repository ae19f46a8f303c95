"""Check a shard folder: structure, counts, sha256.

Reads every byte and compares it with the manifest. Exit status 1 if anything is damaged, missing or
contradictory.
"""

import argparse

from data_prep.commands.options import add_folder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tupelo data verify`."""
    add_folder(parser)


def main(arguments: argparse.Namespace) -> int:
    """Print what is wrong, or a summary; return the exit status."""
    from data_prep.shards.manifest import read_manifest, summary
    from data_prep.tools.verify import verify

    folder, problems = arguments.folder, verify(arguments.folder)
    print("\n".join(problems) or f"{folder}: fine\n{summary(read_manifest(folder))}")
    return 1 if problems else 0
