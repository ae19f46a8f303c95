"""Print sequences as text, before and after masking.

Decodes some sequences and prints them as stored and as the model sees them, with the tokens that it
must predict.
"""

import argparse
import textwrap
from collections.abc import Iterator

import numpy as np

from data_prep.commands.options import add_options, at_least_1
from data_prep.masking import IGNORED, Masking, mask_sequences
from data_prep.shards.format import ShardSet, open_shards
from data_prep.shards.manifest import SplitName, summary
from data_prep.tokenizer.describe import holes_of, read_tokenizer

WIDTH = 96


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tupelo data show`."""
    add_options(parser, "folder")
    parser.add_argument(
        "--rows",
        type=at_least_1,
        default=3,
        metavar="N",
        help="number of held-out sequences, spread over all (default: 3)",
    )


def main(arguments: argparse.Namespace) -> None:
    """Print the sequences."""
    shards = open_shards(arguments.folder)
    for line in shown_sequences(shards, "valid", count=arguments.rows):
        print(line)


def shown_sequences(shards: ShardSet, name: SplitName, *, count: int) -> Iterator[str]:
    """Yield lines that show sequences spread over a split, before and after masking of tokens.

    Raises:
        TokenizerError: The tokenizer is damaged.
    """
    manifest, split = shards.manifest, shards.split(name)
    tokenizer = read_tokenizer(shards.tokenizer_path)
    numbers = np.unique(np.linspace(0, split.num_sequences - 1, count).astype(int))
    original = split.read(numbers)
    masked = mask_sequences(
        original,
        numbers,
        seed=0,
        epoch=0,
        tokenizer=manifest.tokenizer,
        masking=Masking(holes=holes_of(tokenizer)),
    )
    yield f"{shards.folder}: {manifest.source}\n{summary(manifest)}"
    for number, before, after, positions, labels in zip(numbers, original, *masked, strict=True):
        places = positions[labels != IGNORED].tolist()
        answers = (
            f"{place}: {tokenizer.id_to_token(after[place])} was "
            f"{tokenizer.id_to_token(before[place])}"
            for place in places
        )
        yield f"\n{name} sequence {number}"
        yield _wrapped("text", tokenizer.decode(before.tolist(), skip_special_tokens=False))
        yield _wrapped("masked", tokenizer.decode(after.tolist(), skip_special_tokens=False))
        yield _wrapped("answers", ", ".join(answers))


def _wrapped(title: str, text: str) -> str:
    first, rest = f"  {title:<9}", " " * 11
    return textwrap.fill(text, WIDTH, initial_indent=first, subsequent_indent=rest)
