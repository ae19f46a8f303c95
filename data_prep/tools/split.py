"""Hold out other documents of a finished shard folder."""

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from data_prep.files.progress_bar import progress_bar
from data_prep.shards.folders import complete_or_absent
from data_prep.shards.format import ShardSet, open_shards
from data_prep.shards.manifest import TOKENIZER_FILE, Manifest, SplitName, write_manifest
from data_prep.shards.packing import (
    TOKENS_PER_GROUP,
    RowFormat,
    Tokens,
    documents_of,
    unpack,
)
from data_prep.shards.repacking import ROWS_PER_SHARD, write_by_split, write_splits
from data_prep.text.sampling import EvenSample

if TYPE_CHECKING:
    from data_prep.files.progress_bar import Bar


def hold_out_again(
    folder: Path,
    to: Path,
    *,
    valid_fraction: float,
    rows_per_shard: int = ROWS_PER_SHARD,
) -> Manifest:
    """Write the documents of a shard folder into a new one that holds out others.

    All documents, training ones first, are numbered in order; an even sample of them is held out.
    A repetition of a document, as a weight above 1 makes, goes where the first copy goes; only one
    that is cut short where the old rows end is not known as such. Text that the old rows left out
    stays out. The rows are read twice, and memory grows by about 0.1 KB for each document of the
    sample.

    Args:
        folder: A shard folder, with or without held-out rows.
        to: The new folder.
        valid_fraction: Share of the documents that is held out, in (0, 0.5].
        rows_per_shard: Upper bound of the rows in one file.

    Raises:
        ShardError: A folder cannot be read or written, or a split does not fill a row.
    """
    shards = open_shards(folder)
    manifest = shards.manifest
    row_format = RowFormat.of(manifest.tokenizer, manifest.sequence_length)
    with complete_or_absent(to) as partial:
        scratch = partial / "scratch"
        scratch.mkdir()
        assigned = _assigned(shards, EvenSample(valid_fraction))
        counted = write_by_split(assigned, scratch, row_format)
        splits = write_splits(partial, counted, row_format, rows_per_shard=rows_per_shard)
        shutil.rmtree(scratch)
        shutil.copyfile(shards.tokenizer_path, partial / TOKENIZER_FILE)
        line = f"split: {valid_fraction:g} of all documents held out anew"
        new = manifest.model_copy(
            update={
                "splits": splits,
                "dtype": row_format.dtype,
                "settings": {
                    "command": "split",
                    "valid_fraction": valid_fraction,
                    "of": manifest.settings,
                },
                "history": (*manifest.history, line),
            }
        )
        write_manifest(partial, new)
    return new


def _all_documents(shards: ShardSet, purpose: str) -> Iterator[Tokens]:
    """Yield the documents of the training rows, then those of the others."""
    manifest, names = shards.manifest, get_args(SplitName)
    total = sum(split.rows for split in manifest.splits.values())
    with progress_bar(purpose, total, "row") as bar:
        for name in (name for name in names if name in manifest.splits):
            pieces = _tokens(shards, name, bar)
            yield from documents_of(pieces, manifest.tokenizer.special_tokens["sep"])


def _tokens(shards: ShardSet, name: SplitName, bar: "Bar") -> Iterator[Tokens]:
    """Yield the text of a split as one stream of tokens, in pieces of bounded size."""
    max_rows = max(1, TOKENS_PER_GROUP // shards.manifest.sequence_length)
    files = range(len(shards.manifest.splits[name].shards))
    for rows in shards.split(name).read_in_order(files, max_rows=max_rows):
        yield unpack(rows)
        bar.update(len(rows))


def _assigned(shards: ShardSet, sample: EvenSample) -> Iterator[tuple[SplitName, Tokens]]:
    """Yield each document with its split."""
    sampled = {
        _digest(document)
        for place, document in enumerate(_all_documents(shards, "sample documents"))
        if sample.takes(place)
    }
    held_out: dict[bytes, bool] = {}  # whether the first copy is; of all others no copy is
    for place, document in enumerate(_all_documents(shards, "read documents")):
        digest = _digest(document)
        if digest in sampled:
            held_out.setdefault(digest, sample.takes(place))
        yield "valid" if held_out.get(digest) else "train", document


def _digest(document: Tokens) -> bytes:
    return hashlib.blake2b(document.tobytes(), digest_size=16).digest()
