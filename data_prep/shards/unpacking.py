"""Get the documents back out of the rows of a shard folder."""

import re
from collections.abc import Iterator
from itertools import groupby
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
    may_be_cut: bool  # whether rows end with it: they hold no sign of where the text went on


def stored_documents(
    shards: ShardSet, name: SplitName, bar: "Bar | None" = None
) -> Iterator[StoredDocument]:
    """Yield the documents of a split in order."""
    sep_id = shards.manifest.tokenizer.special_tokens["sep"]
    for run in stored_runs(shards, name, bar):
        waiting: Tokens | None = None
        for document in documents_of(run, sep_id):
            if waiting is not None:
                yield StoredDocument(waiting, may_be_cut=False)
            waiting = document
        if waiting is not None:
            yield StoredDocument(waiting, may_be_cut=True)


def stored_bytes(manifest: Manifest) -> int:
    """Return the bytes of all rows, which is how far a bar of the other functions goes."""
    num_rows = sum(split.rows for split in manifest.splits.values())
    return num_rows * manifest.sequence_length * np.dtype(manifest.dtype).itemsize


def count_stored(shards: ShardSet, name: SplitName) -> tuple[int, int]:
    """Return how many documents, and how many tokens without separators, the rows hold."""
    sep_id = shards.manifest.tokenizer.special_tokens["sep"]
    num_documents = num_tokens = 0
    for run in stored_runs(shards, name):
        ends_open = False
        for tokens in run:
            num_separators = int((tokens == sep_id).sum())
            num_documents += num_separators
            num_tokens += len(tokens) - num_separators
            ends_open = bool(tokens[-1] != sep_id)
        num_documents += ends_open
    return num_documents, num_tokens


def stored_runs(
    shards: ShardSet, name: SplitName, bar: "Bar | None" = None
) -> Iterator[Iterator[Tokens]]:
    """Yield the text of a split as streams of tokens, each in pieces of bounded size.

    There is one stream, unless `repair` dropped a file: what is before the gap has nothing to do
    with what comes after it. Each stream must be read before the next one is asked for.
    """
    records = shards.manifest.splits[name].shards
    numbers = np.array([_number(record.file, n) for n, record in enumerate(records)])
    places = np.arange(len(records))
    for _, run in groupby(places.tolist(), lambda place: int(numbers[place]) - place):
        yield _pieces(shards, name, list(run), bar)


def _pieces(
    shards: ShardSet, name: SplitName, files: list[int], bar: "Bar | None"
) -> Iterator[Tokens]:
    max_rows = max(1, TOKENS_PER_GROUP // shards.manifest.sequence_length)
    for rows in shards.split(name).read_in_order(files, max_rows=max_rows):
        yield unpack(rows)
        if bar is not None:
            bar.update(rows.nbytes)


def _number(file: str, place: int) -> int:
    """Return the number in the name of a file: it tells where `repair` dropped others."""
    found = re.search(r"-(\d+)\.h5$", file)
    return int(found[1]) if found else place
