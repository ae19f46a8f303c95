"""Count what the rows of a shard folder hold: documents, words, entries of the vocabulary.

One pass over the rows; memory is bounded by the vocabulary, not by the number of rows.
"""

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict
from tokenizers import Tokenizer

from data_prep.files.progress_bar import progress_bar
from data_prep.shards.format import ShardSet
from data_prep.shards.manifest import SplitName, TokenizerRecord
from data_prep.shards.packing import Tokens
from data_prep.shards.unpacking import row_bytes, stored_tokens
from data_prep.tokenizer.describe import TokenizerError, described_tokenizer, word_starts

if TYPE_CHECKING:
    from data_prep.files.progress_bar import Bar

Counts = NDArray[np.int64]
Flags = NDArray[np.bool_]

RARE = (10, 100)  # entries that occur fewer times are reported: they are hardly learned
NUM_FREQUENT = 20


class DocumentLengths(BaseModel):
    """The distribution of the lengths of documents, in tokens."""

    model_config = ConfigDict(frozen=True)

    minimum: int
    lower_quartile: int
    median: int
    upper_quartile: int
    maximum: int
    mean: float


class SplitStatistics(BaseModel):
    """The content of the rows of one split; text that the shards leave out is not counted."""

    model_config = ConfigDict(frozen=True)

    documents: int
    rows: int
    tokens: int  # without [CLS], [SEP] and the separators between documents
    document_lengths: DocumentLengths
    vocabulary: int  # entries that are not special
    entries_seen: int
    entries_below: dict[int, int]  # how many entries occur fewer times than this
    unknown_share: float | None  # of the tokens; None if the tokenizer has no [UNK]
    single_piece_share: float | None  # of the words; None where tokens do not mark word starts
    tokens_per_word: float | None  # words of the text; None where they are unknown
    most_frequent: list[tuple[str, int]]


class SplitCounts(NamedTuple):
    """The distributions that the statistics are computed from."""

    tokens: Counts  # [V], how often each id occurs
    lengths: Counts  # [L], the lengths that occur, ascending
    documents: Counts  # [L], how many documents have each of them
    words: int
    single_piece_words: int


def count_rows(shards: ShardSet) -> dict[SplitName, SplitCounts]:
    """Read all rows once and count what is in them."""
    starts = word_start_flags(shards)
    with progress_bar("count", row_bytes(shards.manifest), "B") as bar:
        return {name: _count_split(shards, name, starts, bar) for name in shards.manifest.splits}


def statistics_of(
    counts: SplitCounts, shards: ShardSet, name: SplitName, tokenizer: Tokenizer
) -> SplitStatistics:
    """Return the statistics of a split's distributions."""
    split, record = shards.manifest.splits[name], shards.manifest.tokenizer
    ordinary = ordinary_counts(counts.tokens, record)
    num_tokens = int(counts.tokens.sum() - counts.tokens[record.special_tokens["sep"]])
    unk_id = record.special_tokens.get("unk")
    frequent = np.argsort(-counts.tokens, kind="stable")
    frequent = frequent[frequent != record.special_tokens["sep"]][:NUM_FREQUENT]
    return SplitStatistics(
        documents=int(counts.documents.sum()),
        rows=split.rows,
        tokens=num_tokens,
        document_lengths=_summarised(counts.lengths, counts.documents),
        vocabulary=len(ordinary),
        entries_seen=int((ordinary > 0).sum()),
        entries_below={limit: int((ordinary < limit).sum()) for limit in RARE},
        unknown_share=None if unk_id is None else int(counts.tokens[unk_id]) / max(1, num_tokens),
        single_piece_share=counts.single_piece_words / counts.words if counts.words else None,
        tokens_per_word=split.tokens / split.words if split.words else None,
        most_frequent=[
            (
                tokenizer.decode([token]) or tokenizer.id_to_token(token) or "?",
                int(counts.tokens[token]),
            )
            for token in frequent.tolist()
            if counts.tokens[token]
        ],
    )


def ordinary_counts(counts: Counts, tokenizer: TokenizerRecord) -> Counts:
    """Return the counts of the entries that are not special."""
    ordinary = np.ones(len(counts), bool)
    ordinary[list(tokenizer.special_tokens.values())] = False
    return counts[ordinary]


def word_start_flags(shards: ShardSet) -> Flags | None:
    """Return which entries start a word [V]; None where the tokens do not mark it."""
    tokenizer = described_tokenizer(shards.tokenizer_path, shards.manifest.tokenizer)
    try:
        return word_starts(tokenizer)
    except TokenizerError:
        return None


def _count_split(
    shards: ShardSet, name: SplitName, starts: Flags | None, bar: "Bar"
) -> SplitCounts:
    tokenizer = shards.manifest.tokenizer
    tokens = np.zeros(tokenizer.vocabulary_size, np.int64)
    counted = _Stream(tokenizer.special_tokens["sep"], starts)
    for piece in stored_tokens(shards, name, bar):
        tokens += np.bincount(piece, minlength=len(tokens))
        counted.add(piece)
    counted.finish()
    lengths = sorted(counted.lengths)
    documents = [counted.lengths[length] for length in lengths]
    return SplitCounts(
        tokens,
        np.array(lengths),
        np.array(documents),
        counted.words,
        counted.single_piece_words,
    )


class _Stream:
    """Counts documents and words in a stream of tokens that comes in pieces."""

    def __init__(self, sep_id: int, starts: Flags | None) -> None:
        self.lengths: Counter[int] = Counter()
        self.words = self.single_piece_words = 0
        self._sep_id, self._starts = sep_id, starts
        self._unfinished = 0  # tokens of a document that continues in the next piece
        self._last: Tokens | None = None

    def add(self, piece: Tokens) -> None:
        """Count a piece."""
        ends = np.flatnonzero(piece == self._sep_id)
        if ends.size:
            lengths = np.diff(ends, prepend=-1) - 1
            lengths[0] += self._unfinished
            self._unfinished = 0
            distinct, counts = np.unique(lengths, return_counts=True)
            self.lengths.update(dict(zip(distinct.tolist(), counts.tolist(), strict=True)))
        self._unfinished += len(piece) - 1 - int(ends[-1]) if ends.size else len(piece)
        if self._starts is not None:
            # Whether a token is a whole word depends on the next one.
            joined = piece if self._last is None else np.concatenate([self._last, piece])
            self._count_words(joined, self._starts[joined[1:]])
            self._last = joined[-1:]

    def finish(self) -> None:
        """Count the document and the word that the last piece ends with."""
        if self._unfinished:
            self.lengths[self._unfinished] += 1
        if self._last is not None:
            self._count_words(np.append(self._last, self._last), np.array([True]))

    def _count_words(self, tokens: Tokens, next_starts: Flags) -> None:
        """Count the words that start at any token but the last."""
        assert self._starts is not None
        begins = self._starts[tokens[:-1]] & (tokens[:-1] != self._sep_id)
        self.words += int(begins.sum())
        self.single_piece_words += int((begins & next_starts).sum())


def _summarised(lengths: Counts, documents: Counts) -> DocumentLengths:
    """Return the quartiles of a distribution; each is a length that occurs."""
    reached = np.cumsum(documents)

    def quantile(share: float) -> int:
        place = int(np.searchsorted(reached, share * reached[-1]))
        return int(lengths[place])

    return DocumentLengths(
        minimum=int(lengths[0]),
        lower_quartile=quantile(0.25),
        median=quantile(0.5),
        upper_quartile=quantile(0.75),
        maximum=int(lengths[-1]),
        mean=float((lengths * documents).sum() / reached[-1]),
    )
