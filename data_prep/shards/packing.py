"""Pack a stream of token ids into full sequences without padding, and unpack them again.

Full sentences as in RoBERTa (Liu et al. 2019, section 4.2, FULL-SENTENCES): sentences follow each
other in order, and sequences continue across documents with one separator between them. Differs
from RoBERTa at the end of a sequence: there a sentence that does not fit starts the next one and
padding fills the rest; here it continues in the next one, so that every position holds a token.

Sequence r depends on the tokens r * (S - 2) .. (r + 1) * (S - 2) - 1 alone, so the files of a split
can be written in any order, by any number of processes.
"""

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from data_prep.files.progress_bar import progress_bar
from data_prep.settings import BuildSettings
from data_prep.shards.format import Sequences, write_shard
from data_prep.shards.manifest import (
    ShardError,
    ShardRecord,
    SplitName,
    SplitRecord,
    TokenizerRecord,
)

Tokens = NDArray[np.unsignedinteger]
IdType = Literal["uint16", "uint32"]

# Read and written at once, about: it bounds memory, not the result.
TOKENS_PER_GROUP = 1 << 20
SEQUENCES_PER_SHARD: int = BuildSettings.model_fields["rows_per_shard"].default


class TokenFile(NamedTuple):
    """A raw file of token ids, a separator after each document."""

    file: Path
    num_tokens: int


class TokenStream(NamedTuple):
    """Token files, read as one array."""

    files: tuple[TokenFile, ...]
    dtype: IdType

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


class TokenWriter:
    """Writes documents as a raw file of token ids, a separator after each."""

    def __init__(self, file: Path, tokenizer: TokenizerRecord) -> None:
        self.documents = self.tokens = 0  # without separators
        self._file, self._dtype = file, id_type(tokenizer.vocabulary_size)
        self._separator = np.array([tokenizer.special_tokens["sep"]], self._dtype).tobytes()
        self._stream = file.open("wb", TOKENS_PER_GROUP)

    def append(self, document: NDArray[np.integer]) -> None:
        """Write a document and a separator."""
        self._stream.write(document.astype(self._dtype, copy=False).tobytes())
        self._stream.write(self._separator)
        self.documents += 1
        self.tokens += len(document)

    def close(self) -> TokenStream:
        """Close the file and return it as a stream."""
        self._stream.close()
        return TokenStream((TokenFile(self._file, self.tokens + self.documents),), self._dtype)


class SequenceFormat(NamedTuple):
    """The format of sequences: [CLS], S - 2 tokens, [SEP]."""

    sequence_length: int
    dtype: IdType
    tokenizer: TokenizerRecord

    @classmethod
    def of(cls, tokenizer: TokenizerRecord, sequence_length: int) -> "SequenceFormat":
        """Return the format with this tokenizer's ids, in the smallest type."""
        return cls(sequence_length, id_type(tokenizer.vocabulary_size), tokenizer)

    def packed(self, tokens: Tokens) -> Sequences:
        """Return tokens [n * (S - 2)] as sequences [n, S]."""
        num_sequences = len(tokens) // (self.sequence_length - 2)
        sequences = np.empty((num_sequences, self.sequence_length), self.dtype)
        sequences[:, 0] = self.tokenizer.special_tokens["cls"]
        sequences[:, 1:-1] = tokens.reshape(num_sequences, -1)
        sequences[:, -1] = self.tokenizer.special_tokens["sep"]
        return sequences


class ShardTask(NamedTuple):
    """One file of sequences to write."""

    file: str
    stream: TokenStream
    first: int  # number of its first sequence
    num_sequences: int
    format: SequenceFormat

    def write(self, folder: Path) -> ShardRecord:
        """Write the file, complete or not at all."""
        return write_shard(
            folder / self.file,
            self._sequences(),
            shape=(self.num_sequences, self.format.sequence_length),
            dtype=self.format.dtype,
            tokenizer_sha256=self.format.tokenizer.sha256,
        )

    def _sequences(self) -> Iterator[Sequences]:
        length = self.format.sequence_length - 2
        per_group = max(1, TOKENS_PER_GROUP // length)
        end = self.first + self.num_sequences
        for first in range(self.first, end, per_group):
            last = min(first + per_group, end)
            yield self.format.packed(
                np.concatenate(list(self.stream.read(first * length, last * length)))
            )


def shard_tasks(
    name: SplitName, stream: TokenStream, form: SequenceFormat, *, longest: int
) -> list[ShardTask]:
    """Return the files of a split: of equal length, as few as files of `longest` sequences allow.

    Tokens that do not fill a last sequence are left out, and so are the last sequences that would
    make one file longer than the others. A stream shorter than a sequence gives no files.
    """
    num_sequences = stream.num_tokens // (form.sequence_length - 2)
    num_shards = -(-num_sequences // longest)
    length = num_sequences // max(1, num_shards)
    return [
        ShardTask(f"{name}-{n:05d}.h5", stream, n * length, length, form) for n in range(num_shards)
    ]


def split_record(tasks: list[ShardTask], shards: list[ShardRecord], **counts: Any) -> SplitRecord:
    """Return the record of a split whose files are written.

    Args:
        tasks: Its files, one at least.
        shards: Their records.
        counts: `documents`, `words`, `sentences` and `tokens` of its text.
    """
    written = sum(task.num_sequences for task in tasks)
    in_text = tasks[0].stream.num_tokens // (tasks[0].format.sequence_length - 2)
    return SplitRecord(
        **counts,
        rows=written,
        rows_per_shard=tasks[0].num_sequences,
        rows_dropped=in_text - written,
        shards=tuple(shards),
    )


def write_splits(
    folder: Path,
    documents: Iterable[tuple[SplitName, Tokens]],
    form: SequenceFormat,
    *,
    longest: int,
) -> dict[SplitName, SplitRecord]:
    """Pack documents that are ids already, and write the files of both splits.

    Args:
        folder: The shard folder; it temporarily holds the token ids too.
        documents: In order, each with the name of its split.
        form: Of the sequences.
        longest: Most sequences in one file.

    Raises:
        ShardError: A split does not fill a single sequence.
    """
    scratch = folder / "tokens"
    scratch.mkdir()
    names: tuple[SplitName, ...] = ("train", "valid")
    writers = {name: TokenWriter(scratch / name, form.tokenizer) for name in names}
    for name, document in documents:
        writers[name].append(document)
    splits = {}
    with progress_bar("write tokens", sum(w.tokens for w in writers.values()), "token") as bar:
        for name, writer in writers.items():
            tasks = shard_tasks(name, writer.close(), form, longest=longest)
            if not tasks:
                raise ShardError(
                    f"the {name} split has {writer.tokens:,} tokens in {writer.documents:,} "
                    f"documents, too few for one sequence of {form.sequence_length}; use more "
                    "text, a shorter sequence_length or another share"
                )
            shards = []
            for task in tasks:
                shards.append(task.write(folder))
                bar.update(task.num_sequences * (form.sequence_length - 2))
            counts = {"documents": writer.documents, "tokens": writer.tokens}
            splits[name] = split_record(tasks, shards, words=None, sentences=None, **counts)
    shutil.rmtree(scratch)
    return splits


def unpack(sequences: Sequences) -> Tokens:
    """Return the tokens [n * (S - 2)] that sequences [n, S] were cut from."""
    return sequences[:, 1:-1].reshape(-1)


def documents_of(pieces: Iterable[Tokens], sep_id: int) -> Iterator[Tokens]:
    """Yield the documents of a stream of tokens in pieces, without separators.

    The last one may be cut short: sequences do not mark where the stream continued.
    """
    unfinished: list[Tokens] = []
    for piece in pieces:
        first = 0
        for end in np.flatnonzero(piece == sep_id).tolist():
            yield np.concatenate([*unfinished, piece[first:end]])
            unfinished, first = [], end + 1
        unfinished.append(piece[first:])
    if any(map(len, unfinished)):
        yield np.concatenate(unfinished)


def id_type(vocabulary_size: int) -> IdType:
    """Return the smallest type that holds every id."""
    return "uint16" if vocabulary_size <= 1 << 16 else "uint32"
