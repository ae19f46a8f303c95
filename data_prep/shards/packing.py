"""Pack a stream of token ids into full rows without padding, and unpack them again.

Full sentences as in RoBERTa (Liu et al. 2019, section 4.2, FULL-SENTENCES): sentences follow each
other in order, and rows continue across documents with one separator between them. Differs from
RoBERTa at the end of a row: there a sentence that does not fit starts the next row and padding
fills the rest; here it continues in the next row, so that every position holds a token.

Row r depends on the tokens r * (S - 2) .. (r + 1) * (S - 2) - 1 alone, so the files of a split can
be written in any order, by any number of processes.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from data_prep.shards.format import Rows, write_shard
from data_prep.shards.manifest import ShardRecord, SplitName, TokenizerRecord

Tokens = NDArray[np.unsignedinteger]
RowType = Literal["uint16", "uint32"]

# Rows are read and written in groups of about this many tokens; it bounds memory, not the result.
TOKENS_PER_GROUP = 1 << 20


class TokenFile(NamedTuple):
    """A raw file of token ids, a separator after each document."""

    file: Path
    num_tokens: int


class TokenStream(NamedTuple):
    """Token files, read as one array."""

    files: tuple[TokenFile, ...]
    dtype: RowType

    @property
    def num_tokens(self) -> int:
        """Return the number of tokens, without the separator after the last document."""
        return max(0, sum(part.num_tokens for part in self.files) - 1)

    def read(self, first: int, end: int) -> Iterator[Tokens]:
        """Yield the tokens first .. end - 1 in pieces, at most one for each file."""
        for file, num_tokens in self.files:
            if num_tokens and first < num_tokens and end > 0:
                yield np.memmap(file, self.dtype, "r")[max(first, 0) : end]
            first, end = first - num_tokens, end - num_tokens


class RowFormat(NamedTuple):
    """The format of rows: [CLS], S - 2 tokens, [SEP]."""

    sequence_length: int
    dtype: RowType
    tokenizer: TokenizerRecord

    @classmethod
    def of(cls, tokenizer: TokenizerRecord, sequence_length: int) -> "RowFormat":
        """Return the format of rows with this tokenizer's ids, in the smallest type."""
        return cls(sequence_length, id_type(tokenizer.vocabulary_size), tokenizer)

    def rows(self, tokens: Tokens) -> Rows:
        """Return tokens [n * (S - 2)] as rows [n, S]."""
        rows = np.empty(
            (len(tokens) // (self.sequence_length - 2), self.sequence_length), self.dtype
        )
        rows[:, 0] = self.tokenizer.special_tokens["cls"]
        rows[:, 1:-1] = tokens.reshape(len(rows), -1)
        rows[:, -1] = self.tokenizer.special_tokens["sep"]
        return rows


class ShardTask(NamedTuple):
    """One file of rows to write."""

    file: str
    stream: TokenStream
    first_row: int
    num_rows: int
    format: RowFormat

    def write(self, folder: Path) -> ShardRecord:
        """Write the file, complete or not at all."""
        return write_shard(
            folder / self.file,
            self._rows(),
            shape=(self.num_rows, self.format.sequence_length),
            dtype=self.format.dtype,
            tokenizer_sha256=self.format.tokenizer.sha256,
        )

    def _rows(self) -> Iterator[Rows]:
        per_row = self.format.sequence_length - 2
        per_group = max(1, TOKENS_PER_GROUP // per_row)
        end = self.first_row + self.num_rows
        for first in range(self.first_row, end, per_group):
            last = min(first + per_group, end)
            pieces = list(self.stream.read(first * per_row, last * per_row))
            yield self.format.rows(np.concatenate(pieces))


def shard_tasks(
    name: SplitName, stream: TokenStream, row_format: RowFormat, *, max_rows_per_shard: int
) -> list[ShardTask]:
    """Return the files of a split: of equal length, as few as `max_rows_per_shard` allows.

    Tokens that do not fill a last row are left out, and so are the last rows that would make one
    file longer than the others (see `rows_dropped`). A stream shorter than a row gives no files.
    """
    num_rows = stream.num_tokens // (row_format.sequence_length - 2)
    num_shards = -(-num_rows // max_rows_per_shard)
    rows_per_shard = num_rows // max(1, num_shards)
    return [
        ShardTask(f"{name}-{n:05d}.h5", stream, n * rows_per_shard, rows_per_shard, row_format)
        for n in range(num_shards)
    ]


def rows_dropped(tasks: list[ShardTask]) -> int:
    """Return the number of full rows that these files leave out; it is below their number."""
    per_row = tasks[0].format.sequence_length - 2
    return tasks[0].stream.num_tokens // per_row - sum(task.num_rows for task in tasks)


def unpack(rows: Rows) -> Tokens:
    """Return the tokens [n * (S - 2)] that rows [n, S] were cut from."""
    return rows[:, 1:-1].reshape(-1)


def documents_of(pieces: Iterable[Tokens], sep_id: int) -> Iterator[Tokens]:
    """Yield the documents of a stream of tokens in pieces, without separators.

    The last one may be cut short: rows do not mark where the stream continued.
    """
    unfinished: list[Tokens] = []
    for piece in pieces:
        ends = np.flatnonzero(piece == sep_id)
        first = 0
        for end in ends.tolist():
            yield np.concatenate([*unfinished, piece[first:end]])
            unfinished, first = [], end + 1
        unfinished.append(piece[first:])
    if any(map(len, unfinished)):
        yield np.concatenate(unfinished)


def write_documents(
    file: Path, documents: Iterable[Tokens], sep_id: int, dtype: RowType
) -> TokenFile:
    """Write documents as a raw file of token ids, a separator after each."""
    num_tokens = 0
    separator = np.array([sep_id], dtype)
    with file.open("wb") as stream:
        for document in documents:
            document.astype(dtype, copy=False).tofile(stream)
            separator.tofile(stream)
            num_tokens += len(document) + 1
    return TokenFile(file, num_tokens)


def id_type(vocabulary_size: int) -> RowType:
    """Return the smallest type that holds every id."""
    return "uint16" if vocabulary_size <= 1 << 16 else "uint32"
