"""Recover the documents from the rows of a shard folder."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from data_prep.shards.format import ShardSet
from data_prep.shards.manifest import Manifest, SplitName
from data_prep.shards.packing import TOKENS_PER_GROUP, Tokens, documents_of, unpack

if TYPE_CHECKING:
    from data_prep.files.progress_bar import Bar


class StoredDocument(NamedTuple):
    """The token ids of a document, without separator."""

    ids: Tokens
    may_be_cut: bool  # it is the last one of the rows, which do not mark where the text continued


def stored_documents(
    shards: ShardSet, name: SplitName, bar: "Bar | None" = None
) -> Iterator[StoredDocument]:
    """Yield the documents of a split in order."""
    sep_id = shards.manifest.tokenizer.special_tokens["sep"]
    last: Tokens | None = None
    for document in documents_of(stored_tokens(shards, name, bar), sep_id):
        if last is not None:
            yield StoredDocument(last, may_be_cut=False)
        last = document
    if last is not None:
        yield StoredDocument(last, may_be_cut=True)


def row_bytes(manifest: Manifest) -> int:
    """Return the bytes of all rows: the total of the progress bar of the other functions."""
    num_rows = sum(split.rows for split in manifest.splits.values())
    return num_rows * manifest.sequence_length * np.dtype(manifest.dtype).itemsize


def stored_tokens(shards: ShardSet, name: SplitName, bar: "Bar | None" = None) -> Iterator[Tokens]:
    """Yield the text of a split as one stream of tokens, in pieces of bounded size."""
    max_rows = max(1, TOKENS_PER_GROUP // shards.manifest.sequence_length)
    files = range(len(shards.manifest.splits[name].shards))
    for rows in shards.split(name).read_in_order(files, max_rows=max_rows):
        yield unpack(rows)
        if bar is not None:
            bar.update(rows.nbytes)
