"""BERT's dynamic masking, as a function of seed, epoch, sequence and column alone.

Masking as in Devlin et al. (2019, section 3.1), drawn again in each epoch. Every decision is a hash
of (seed, epoch, number of the sequence, column), so it depends neither on the batch that a sequence
is in nor on the number of ranks or workers. Differs from BERT in that a sequence always has exactly
k slots for predictions, which keeps shapes static and gives every micro-batch the same weight.

What is hidden together is a group: a token, a word (whole-word masking of the later BERT releases,
Cui et al. 2019), or a run of words (SpanBERT, Joshi et al. 2020, section 3.1). Groups are taken in
a random order until the k slots are full:

* A word of which only a part would fit is left out, and its slots stay empty (with words of 1.5
  pieces 2.6 % of them at S = 128, 0.7 % at 512). BERT tries later words instead, which favours
  short words more than this does. A word of more than k pieces is never hidden.
* A span that does not fit is shortened by whole words. SpanBERT draws the length of a span first
  and then its start; here the sequence is first cut into spans, by a random draw at each word, and
  then some are selected. The lengths are geometric too, but not limited to 10 words, a span ends at
  special tokens and at the ends of a sequence, and two selected spans may touch. Spans lose their
  last words, so the word after a special token is hidden more often than others: 1.23 times at
  S = 128, 1.08 at 512; from the tenth word on there is no difference.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from data_prep.shards.manifest import TokenizerRecord

IGNORED = -100  # the label PyTorch's cross entropy leaves out

MaskingKind = Literal["tokens", "words", "spans"]

# Constants of splitmix64 (Steele, Lea and Flood 2014).
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)

_SPECIAL = np.uint64(1 << 63)  # sorts special tokens behind all others
_LOW_HALF = np.uint64(0xFFFFFFFF)

# Tokens worked on at once. Their keys (8 bytes each) and a copy stay in a core's cache of 1 MiB;
# half as many took 1.2 times as long there, because every call of numpy has a fixed cost.
_BLOCK_TOKENS = 32_768


@dataclass(frozen=True)
class Masking:
    """What is hidden, and how much of it."""

    kind: MaskingKind = "tokens"
    probability: float = 0.15  # share of the positions, special ones counted
    mean_span_words: float = 3.8  # SpanBERT: Geo(0.2) up to 10; used by spans only
    # [V], whether a word starts with a token; needed for words and spans
    word_starts: NDArray[np.bool_] | None = None
    # Of the predicted tokens; the rest are shown as they are.
    mask_token_share: float = 0.8  # shown as [MASK]
    random_token_share: float = 0.1  # shown as another token
    holes: NDArray[np.integer] | None = None  # ids without an entry, which are never shown


BERT_MASKING = Masking()


class MaskedSequences(NamedTuple):
    """A batch for masked-language modelling; n sequences of S tokens with k slots."""

    ids: NDArray[np.int64]  # [n, S], after masking
    positions: NDArray[np.int64]  # [n, k], ascending columns
    labels: NDArray[np.int64]  # [n, k], the original ids, or IGNORED


class _Selection(NamedTuple):
    """The k slots of n sequences; the arrays are [n, k]."""

    positions: NDArray[np.int64]  # ascending columns
    deciders: NDArray[np.int64]  # the columns whose draws decide what is shown
    used: NDArray[np.bool_]  # False: the slot stays empty, its position unchanged


class _Vocabulary(NamedTuple):
    """The properties of a tokenizer that masking needs."""

    mask: int
    special: list[int]
    others_before: NDArray[np.int64]  # how many ordinary ids precede each that is none, ascending
    num_ordinary: int

    @classmethod
    def of(cls, tokenizer: TokenizerRecord, masking: Masking) -> "_Vocabulary":
        special = list(set(tokenizer.special_tokens.values()))
        no_word = np.union1d(special, [] if masking.holes is None else masking.holes)
        before = no_word.astype(np.int64) - np.arange(len(no_word))
        size = tokenizer.vocabulary_size - len(no_word)
        return cls(tokenizer.special_tokens["mask"], special, before, size)

    def ordinary(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the ids of these ranks among those of tokens that are not special."""
        return ranks + np.searchsorted(self.others_before, ranks, side="right")


def predictions_per_sequence(sequence_length: int, probability: float = 0.15) -> int:
    """Return how many tokens of each sequence are predicted, at most."""
    return max(1, round(probability * sequence_length))


def mask_sequences(
    ids: NDArray[np.integer],
    numbers: NDArray[np.integer],
    *,
    seed: int,
    epoch: int | NDArray[np.integer],
    tokenizer: TokenizerRecord,
    masking: Masking = BERT_MASKING,
) -> MaskedSequences:
    """Hide up to k tokens of each sequence: 80 % [MASK], 10 % a random token, 10 % as they are.

    Special tokens are neither hidden nor drawn. A slot stays empty in a sequence with fewer
    than k ordinary tokens, and where a word would have been cut: its label is `IGNORED` and its
    position is not changed.

    Args:
        ids: Sequences [n, S], with S up to 2^16, as settings allow.
        numbers: The number of each in its split [n].
        seed: Any integer; other seeds and epochs give other masks.
        epoch: Number of the pass over the data, from 0; of each sequence [n], or of all.
        tokenizer: Names the special tokens and the size of the vocabulary.
        masking: What is hidden together, and how much.
    """
    num_sequences, length = ids.shape
    count = predictions_per_sequence(length, masking.probability)
    vocabulary, stream = _Vocabulary.of(tokenizer, masking), np.array([seed % 2**64], np.uint64)
    stream = splitmix64(splitmix64(stream) ^ np.asarray(epoch, np.uint64))
    streams = splitmix64(stream ^ numbers.astype(np.uint64))  # of the hashes of each [n]
    masked = MaskedSequences(
        np.empty((num_sequences, length), np.int64),
        np.empty((num_sequences, count), np.int64),
        np.empty((num_sequences, count), np.int64),
    )
    at_once = max(1, _BLOCK_TOKENS // length)
    for first in range(0, num_sequences, at_once):
        block = slice(first, first + at_once)
        part = _masked_block(ids[block], streams[block], vocabulary, masking)
        for whole, some in zip(masked, part, strict=True):
            whole[block] = some
    return masked


def splitmix64(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the output of the splitmix64 generator that follows each state."""
    mixed = state + _GOLDEN
    # In place: half of the time of the whole masking would go into new arrays.
    mixed ^= mixed >> np.uint64(30)
    mixed *= _FIRST
    mixed ^= mixed >> np.uint64(27)
    mixed *= _SECOND
    mixed ^= mixed >> np.uint64(31)
    return mixed


def _hashes(streams: NDArray[np.uint64], columns: NDArray[np.integer]) -> NDArray[np.uint64]:
    """Return a hash of each column, [S] or [n, k], in each stream [n]."""
    return splitmix64(streams[:, None] + columns.astype(np.uint64) * _GOLDEN)


def _masked_block(
    ids: NDArray[np.integer], streams: NDArray[np.uint64], vocabulary: _Vocabulary, masking: Masking
) -> MaskedSequences:
    is_special = np.isin(ids, vocabulary.special)
    if masking.kind == "tokens":
        selection = _token_selection(is_special, streams, masking)
    else:
        selection = _group_selection(ids, is_special, streams, masking)
    # The second stream of a sequence is the hash of the first, so that what replaces a token is
    # independent of whether it is selected.
    second = splitmix64(streams)
    draws = _hashes(second, selection.positions)
    deciding = draws if masking.kind != "spans" else _hashes(second, selection.deciders)

    masked = ids.astype(np.int64)
    places = _flat(selection.positions, ids.shape[1])
    originals = masked.ravel().take(places)
    action = deciding >> np.uint64(32)
    mask_below = np.uint64(round(masking.mask_token_share * 2**32))
    random_share = masking.mask_token_share + masking.random_token_share
    random_below = np.uint64(round(random_share * 2**32))
    ranks = (draws & _LOW_HALF) * np.uint64(vocabulary.num_ordinary) >> np.uint64(32)
    random_ids = vocabulary.ordinary(ranks.astype(np.int64))
    shown = np.where(selection.used & (action < random_below), random_ids, originals)
    shown = np.where(selection.used & (action < mask_below), vocabulary.mask, shown)
    masked.reshape(-1)[places] = shown
    return MaskedSequences(
        masked, selection.positions, np.where(selection.used, originals, IGNORED)
    )


def _token_selection(
    is_special: NDArray[np.bool_], streams: NDArray[np.uint64], masking: Masking
) -> _Selection:
    """Select k columns of each sequence, special tokens only where there are no others.

    Each column gets a hash as its key and the smallest keys win. The column itself is kept in the
    low bits of the key: keys are never equal, and partitioning values is much faster in numpy than
    partitioning indices.
    """
    length = is_special.shape[1]
    count = predictions_per_sequence(length, masking.probability)
    columns = np.arange(length)
    column_bits = np.uint64((1 << (length - 1).bit_length()) - 1)
    keys = _hashes(streams, columns)
    keys >>= np.uint64(1)
    keys &= ~column_bits
    keys |= columns.astype(np.uint64)
    keys[is_special] |= _SPECIAL
    keys.partition(count - 1, axis=1)
    positions = np.sort((keys[:, :count] & column_bits).astype(np.uint32), axis=1).astype(np.int64)
    return _Selection(positions, positions, ~is_special.ravel().take(_flat(positions, length)))


def _group_selection(
    ids: NDArray[np.integer],
    is_special: NDArray[np.bool_],
    streams: NDArray[np.uint64],
    masking: Masking,
) -> _Selection:
    """Select groups of columns, as many as fit into the k slots of each sequence.

    A key is 31 bits of the hash of its group's first column, then that column, then its own one:
    the smallest keys are whole groups, and the last of them may be cut. The low half sorts as the
    columns do, because groups do not overlap.
    """
    length = ids.shape[1]
    count = predictions_per_sequence(length, masking.probability)
    columns = np.arange(length, dtype=np.uint64)
    hashes = _hashes(streams, columns)
    word_places, group_places = _first_places(ids, is_special, hashes, masking)
    leading = hashes >> np.uint64(33) << np.uint64(32)
    leading |= columns << np.uint64(16)
    sizes = np.diff(group_places, append=ids.size)
    keys = np.repeat(leading.ravel().take(group_places), sizes).reshape(ids.shape)
    keys |= columns
    keys[is_special] |= _SPECIAL
    following = min(count, length - 1)
    keys.partition(following, axis=1)
    lowest = np.sort(keys[:, :count].astype(np.uint32), axis=1).astype(np.int64)
    positions, deciders = lowest & 0xFFFF, lowest >> 16

    used = ~is_special.ravel().take(_flat(positions, length))
    if count < length:
        # The word of the first column that did not fit may start among those that did.
        end = (keys[:, following, None] & np.uint64(0xFFFF)).astype(np.int64)
        places = _flat(end, length)
        word = word_places[np.searchsorted(word_places, places, side="right") - 1]
        used &= (positions < end - (places - word)) | (positions > end)
    return _Selection(positions, deciders, used)


def _first_places(
    ids: NDArray[np.integer],
    is_special: NDArray[np.bool_],
    hashes: NDArray[np.uint64],
    masking: Masking,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the flat places in [n, S] where words start, and those where groups start."""
    # Whatever its token is, a word starts at a special token, after it, and with the sequence.
    alone = is_special.copy()
    alone[:, 1:] |= is_special[:, :-1]
    alone[:, 0] = True
    assert masking.word_starts is not None
    starts = masking.word_starts.take(ids)
    words = np.flatnonzero(starts | alone)
    if masking.kind == "words":
        return words, words
    # The low half of a hash says where spans begin, the high half which of them are selected.
    begins = hashes.astype(np.uint32) < round(2**32 / masking.mean_span_words)
    return words, np.flatnonzero((starts & begins) | alone)


def _flat(columns: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """Return the places of columns [n, k] in the flattened sequences of this length."""
    return columns + np.arange(len(columns))[:, None] * length
