"""Choose another validation set, in a new shard folder.

    tupelo data split data/mine --data.valid_fraction 0.05 --to data/more

Joins training and validation documents and holds out another share of them. Needs no text: the
documents are taken from the shards.
"""

import argparse

from data_prep.command_line import add_setting
from data_prep.commands.options import (
    FIELDS,
    add_folder,
    add_rows_per_shard,
    add_to,
    read_settings,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tupelo data split`."""
    add_folder(parser)
    add_to(parser)
    add_setting(parser, "data.valid_fraction", FIELDS["data.valid_fraction"], required=True)
    add_rows_per_shard(parser)


def main(arguments: argparse.Namespace) -> None:
    """Write the new folder, and print a summary of it."""
    from data_prep.shards.manifest import summary
    from data_prep.tools.split import hold_out_again

    manifest = hold_out_again(
        arguments.folder,
        arguments.to,
        valid_fraction=read_settings(arguments).valid_fraction,
        rows_per_shard=arguments.rows_per_shard,
    )
    print(f"{arguments.to}\n{summary(manifest)}")
