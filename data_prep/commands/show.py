"""Print sequences as text, before and after masking.

Decodes some sequences and prints them as stored and as the model sees them, with the tokens that it
must predict.
"""

import argparse
from typing import get_args

from data_prep.commands.options import add_folder, at_least_1
from data_prep.masking import MaskingKind
from data_prep.shards.manifest import SplitName


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tupelo data show`."""
    add_folder(parser)
    parser.add_argument(
        "--split",
        choices=get_args(SplitName),
        default="valid",
        help="training or validation sequences (default: valid)",
    )
    parser.add_argument(
        "--rows",
        type=at_least_1,
        default=3,
        metavar="N",
        help="number of sequences, spread over the split (default: 3)",
    )
    parser.add_argument(
        "--masking",
        choices=get_args(MaskingKind),
        default="tokens",
        help="what is masked: single tokens, whole words or spans of words (default: tokens)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of the masks (default: 0)"
    )


def main(arguments: argparse.Namespace) -> None:
    """Print the sequences."""
    from data_prep.shards.format import open_shards
    from data_prep.tools.show import shown_sequences

    shards, split = open_shards(arguments.folder), arguments.split
    masks = {"seed": arguments.seed, "masking": arguments.masking}
    for line in shown_sequences(shards, split, count=arguments.rows, **masks):
        print(line)
