"""Choose which tokens to hide and what stands in their place, as a function of the place alone.

BERT's masking (Devlin et al. 2019, section 3.1), drawn anew in each epoch. Every decision is a hash
of (seed, epoch, row number, column), so it depends neither on the batch a row is in nor on the
number of ranks or workers. Differs from BERT in that a row always has exactly k predictions, which
keeps shapes static and gives every micro-batch the same weight.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from data_prep.shards import TokenizerRecord

IGNORED = -100  # the label PyTorch's cross entropy leaves out

# Constants of splitmix64 (Steele, Lea and Flood 2014).
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)

_SPECIAL = np.uint64(1 << 63)  # sorts special tokens behind all others
_MASK_BELOW = np.uint64(round(0.8 * 2**32))
_RANDOM_BELOW = np.uint64(round(0.9 * 2**32))


class MaskedRows(NamedTuple):
    """A batch for masked-language modelling; n rows of S tokens with k predictions each."""

    ids: NDArray[np.int64]  # [n, S], after masking
    positions: NDArray[np.int64]  # [n, k], ascending columns
    labels: NDArray[np.int64]  # [n, k], the original ids, or IGNORED


def predictions_per_row(sequence_length: int, probability: float = 0.15) -> int:
    """Return how many tokens of each row are predicted."""
    return max(1, round(probability * sequence_length))


def mask_rows(
    ids: NDArray[np.integer],
    row_numbers: NDArray[np.integer],
    *,
    seed: int,
    epoch: int,
    tokenizer: TokenizerRecord,
    probability: float = 0.15,
) -> MaskedRows:
    """Hide exactly k tokens of each row: 80 % [MASK], 10 % a random token, 10 % left as they are.

    Special tokens are neither hidden nor drawn. A row with fewer than k other tokens has `IGNORED`
    among its labels, at positions that are not changed.

    Args:
        ids: Rows [n, S].
        row_numbers: The number of each row in its split [n].
        seed: Any integer; other seeds and epochs give other masks.
        epoch: Number of the pass over the data, from 0.
        tokenizer: Names the special tokens and the size of the vocabulary.
        probability: Share of each row's positions that is predicted, special ones counted.
    """
    special = np.zeros(tokenizer.vocabulary_size, bool)
    special[list(tokenizer.special_tokens.values())] = True
    with np.errstate(over="ignore"):
        streams = _row_streams(row_numbers, seed, epoch)
        count = predictions_per_row(ids.shape[1], probability)
        positions = _chosen_positions(special[ids], streams, count)
        # The second stream of a row is the hash of the first, so that what replaces a token is
        # independent of whether it was chosen.
        draws = splitmix64(splitmix64(streams)[:, None] + positions.astype(np.uint64) * _GOLDEN)

    masked = ids.astype(np.int64)
    originals = np.take_along_axis(masked, positions, axis=1)
    hidden = ~special[originals]
    shown = _shown_instead(originals, draws, special, tokenizer.special_tokens["mask"])
    np.put_along_axis(masked, positions, np.where(hidden, shown, originals), axis=1)
    return MaskedRows(masked, positions, np.where(hidden, originals, IGNORED))


def splitmix64(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the output of the splitmix64 generator that follows each state."""
    mixed = state + _GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    return mixed ^ (mixed >> np.uint64(31))


def _row_streams(row_numbers: NDArray[np.integer], seed: int, epoch: int) -> NDArray[np.uint64]:
    """Return the state from which each row's hashes are drawn [n]."""
    stream = splitmix64(np.array([seed % 2**64], np.uint64))
    stream = splitmix64(stream ^ np.uint64(epoch))
    return splitmix64(stream ^ row_numbers.astype(np.uint64))


def _chosen_positions(
    is_special: NDArray[np.bool_], streams: NDArray[np.uint64], count: int
) -> NDArray[np.int64]:
    """Return `count` ascending columns of each row [n, count], special tokens only where needed.

    Each column gets a hash as its key and the smallest keys win. The column itself is kept in the
    low bits of the key: keys are never equal, and partitioning values is much faster in numpy than
    partitioning indices.
    """
    columns = np.arange(is_special.shape[1], dtype=np.uint64)
    column_bits = np.uint64((1 << (len(columns) - 1).bit_length()) - 1)
    keys = splitmix64(streams[:, None] + columns * _GOLDEN) >> np.uint64(1)
    keys = (keys & ~column_bits) | columns | np.where(is_special, _SPECIAL, np.uint64(0))
    smallest = np.partition(keys, count - 1, axis=1)[:, :count]
    return np.sort((smallest & column_bits).astype(np.int64), axis=1)


def _shown_instead(
    originals: NDArray[np.int64],
    draws: NDArray[np.uint64],
    special: NDArray[np.bool_],
    mask_id: int,
) -> NDArray[np.int64]:
    """Return what each draw puts in the place of a token; all arrays but `special` are [n, k]."""
    action, number = draws >> np.uint64(32), draws & np.uint64(0xFFFFFFFF)
    ordinary = np.flatnonzero(~special)
    random_ids = ordinary[(number * np.uint64(len(ordinary))) >> np.uint64(32)]
    shown = np.where(action < _RANDOM_BELOW, random_ids, originals)
    shown[action < _MASK_BELOW] = mask_id
    return shown
