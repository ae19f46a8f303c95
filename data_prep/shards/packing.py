"""Pack a stream of token ids into full sequences without padding.

Full sentences as in RoBERTa (Liu et al. 2019, section 4.2, FULL-SENTENCES): sentences follow each
other in order, and sequences continue across documents with one separator between them. Differs
from RoBERTa at the end of a sequence: there a sentence that does not fit starts the next one and
padding fills the rest; here it continues in the next one, so that every position holds a token.

Sequence r depends on the tokens r * (S - 2) .. (r + 1) * (S - 2) - 1 alone, so the files of a split
can be written in any order, by any number of processes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from data_prep.files.progress_bar import progress_bar
from data_prep.shards.format import IdType, SequenceFormat, Sequences, Tokens, id_type, write_shard
from data_prep.shards.manifest import (
    ShardError,
    ShardRecord,
    SplitName,
    SplitRecord,
    TokenizerRecord,
)

# Read and written at once, about: it bounds memory, not the result.
TOKENS_PER_GROUP = 1 << 20


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


class ShardTask(NamedTuple):
    """One file of sequences to write."""

    file: Path
    stream: TokenStream
    first: int  # number of its first sequence
    num_sequences: int
    format: SequenceFormat

    def write(self) -> ShardRecord:
        """Write the file."""
        return write_shard(self.file, self._sequences(), self.num_sequences, self.format)

    def _sequences(self) -> Iterator[Sequences]:
        length = self.format.sequence_length - 2
        per_group = max(1, TOKENS_PER_GROUP // length)
        end = self.first + self.num_sequences
        for first in range(self.first, end, per_group):
            last = min(first + per_group, end)
            yield self.format.packed(
                np.concatenate(list(self.stream.read(first * length, last * length)))
            )


def write_split(
    folder: Path,
    name: SplitName,
    stream: TokenStream,
    form: SequenceFormat,
    *,
    longest: int,
    counts: Mapping[str, int | None],
    run: Callable[..., Iterable[ShardRecord]] = map,
) -> SplitRecord:
    """Write the files of a split, and describe it.

    Files have equal lengths and are as few as `longest` sequences in each allow. Tokens that do not
    fill a last sequence are left out, and so are the last sequences that would make one file longer
    than the others. `counts` are `documents`, `words` and `tokens` of its text. `run` applies a
    function to each task, in order: `map`, or that of a pool of workers.

    Raises:
        ShardError: The tokens do not fill a single sequence.
    """
    in_text = stream.num_tokens // (form.sequence_length - 2)
    if not in_text:
        raise ShardError(
            f"the {name} split has {counts['tokens']:,} tokens in {counts['documents']:,} "
            f"documents, too few for one sequence of {form.sequence_length}; use more text, a "
            "shorter sequence_length or another valid_fraction"
        )
    num_shards = -(-in_text // longest)
    length = in_text // num_shards
    tasks = [
        ShardTask(folder / f"{name}-{number:05d}.h5", stream, number * length, length, form)
        for number in range(num_shards)
    ]
    shards = []
    with progress_bar(f"{name} sequences", length * num_shards, "sequence") as bar:
        for shard in run(ShardTask.write, tasks):
            shards.append(shard)
            bar.update(shard.rows)
    return SplitRecord.model_validate(
        {
            **counts,
            "rows": length * num_shards,
            "rows_per_shard": length,
            "rows_dropped": in_text - length * num_shards,
            "shards": tuple(shards),
        }
    )


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
