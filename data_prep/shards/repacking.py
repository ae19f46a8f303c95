"""Write shards from documents that are token ids already: for split and import."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import numpy as np

from data_prep.files.progress_bar import progress_bar
from data_prep.settings import BuildSettings
from data_prep.shards.manifest import ShardError, SplitName, SplitRecord
from data_prep.shards.packing import (
    TOKENS_PER_GROUP,
    RowFormat,
    TokenFile,
    Tokens,
    TokenStream,
    rows_dropped,
    shard_tasks,
)

if TYPE_CHECKING:
    from data_prep.files.progress_bar import Bar

ROWS_PER_SHARD: int = BuildSettings.model_fields["rows_per_shard"].default


class CountedStream(NamedTuple):
    """A stream of tokens with its counts."""

    stream: TokenStream
    documents: int
    tokens: int  # without separators


class DocumentFile:
    """A raw file of token ids that grows by whole documents."""

    def __init__(self, file: Path, row_format: RowFormat) -> None:
        self.file, self.documents, self.tokens = file, 0, 0
        self._dtype = row_format.dtype
        self._separator = np.array([row_format.tokenizer.special_tokens["sep"]], self._dtype)
        self._stream: BinaryIO = file.open("wb")
        self._waiting: list[Tokens] = []
        self._num_waiting = 0

    def append(self, document: Tokens) -> None:
        """Write a document and a separator."""
        self._waiting += [document.astype(self._dtype, copy=False), self._separator]
        self._num_waiting += len(document)
        self.documents += 1
        self.tokens += len(document)
        if self._num_waiting >= TOKENS_PER_GROUP:
            self._write()

    def finish(self) -> TokenFile:
        """Close the file and return it."""
        self._write()
        self._stream.close()
        return TokenFile(self.file, self.tokens + self.documents)

    def counted(self) -> CountedStream:
        """Close the file and return it as a stream."""
        return CountedStream(
            TokenStream((self.finish(),), self._dtype), self.documents, self.tokens
        )

    def _write(self) -> None:
        if self._waiting:
            self._stream.write(np.concatenate(self._waiting).tobytes())
        self._waiting, self._num_waiting = [], 0


def write_by_split(
    documents: Iterable[tuple[SplitName, Tokens]], scratch: Path, row_format: RowFormat
) -> dict[SplitName, CountedStream]:
    """Write each document into the token file of its split."""
    names: tuple[SplitName, ...] = ("train", "valid")
    files = {name: DocumentFile(scratch / f"{name}.ids", row_format) for name in names}
    for name, document in documents:
        files[name].append(document)
    return {name: file.counted() for name, file in files.items()}


def tokens_in_groups(stream: TokenStream) -> Iterator[Tokens]:
    """Yield all tokens of a stream in pieces of bounded size."""
    for first in range(0, stream.num_tokens, TOKENS_PER_GROUP):
        yield from stream.read(first, min(first + TOKENS_PER_GROUP, stream.num_tokens))


def write_splits(
    folder: Path,
    counted: dict[SplitName, CountedStream],
    row_format: RowFormat,
    *,
    rows_per_shard: int,
) -> dict[SplitName, SplitRecord]:
    """Cut the streams into rows and write the files of each split.

    Raises:
        ShardError: A split does not fill a single row.
    """
    total = sum(part.stream.num_tokens for part in counted.values())
    with progress_bar("write sequences", total, "token") as bar:
        return {
            name: _write_split(folder, name, part, row_format, rows_per_shard, bar)
            for name, part in counted.items()
        }


def _write_split(
    folder: Path,
    name: SplitName,
    counted: CountedStream,
    row_format: RowFormat,
    rows_per_shard: int,
    bar: "Bar",
) -> SplitRecord:
    tasks = shard_tasks(name, counted.stream, row_format, max_rows_per_shard=rows_per_shard)
    if not tasks:
        raise ShardError(
            f"the {name} split has {counted.tokens:,} tokens in {counted.documents:,} documents, "
            f"too few for one sequence of {row_format.sequence_length}; use more text, a shorter "
            "sequence_length or another share"
        )
    shards = []
    for task in tasks:
        shards.append(task.write(folder))
        bar.update(task.num_rows * (row_format.sequence_length - 2))
    return SplitRecord(
        documents=counted.documents,
        words=None,
        sentences=None,
        tokens=counted.tokens,
        rows=sum(shard.rows for shard in shards),
        rows_per_shard=tasks[0].num_rows,
        rows_dropped=rows_dropped(tasks),
        shards=tuple(shards),
    )
