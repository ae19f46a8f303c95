"""Rows of token ids, and their order in batches.

Rows of similar length share a batch, which keeps padding low. Composition and order of the batches
depend on the seed and the epoch alone.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

# Rows are sorted by length within pools of this many batches. On RTE, 45 % of the tokens are
# padding in random batches, 8 % with 16, and 5 % in a single pool, where every epoch would have the
# same batches.
POOL_BATCHES = 16

# Few different shapes, and aligned rows for the kernels of a GPU.
MULTIPLE = 8

# Separates the order of the rows from every other use of the seed.
ORDER_STREAM = 0x6F72646572


class Batch(NamedTuple):
    """Padded rows: ids_BS int64, lengths_B int32; of which tokens the outputs count, int64."""

    ids_BS: Tensor
    lengths_B: Tensor
    positions_M: Tensor  # sequence * S + place


class TokenRows:
    """Token ids of many rows in one array: a list of lists would need ten times the memory."""

    def __init__(
        self,
        rows: Sequence[Sequence[int] | NDArray[numpy.int32]],
        *,
        pad: int,
        longest: int,
        places: Sequence[Sequence[int] | NDArray[numpy.int64]] | None = None,
    ) -> None:
        """Take the rows.

        Args:
            rows: token ids.
            pad: id that fills up a row.
            longest: no row is padded beyond it; the length of the model's position table.
            places: the tokens of each row whose outputs count; None: [CLS], the first.
        """
        self.lengths = numpy.array([len(row) for row in rows], dtype=numpy.int64)
        assert len(rows) and self.lengths.min() > 0 and self.lengths.max() <= longest
        self._ends = self.lengths.cumsum()
        self._ids = numpy.concatenate(rows).astype(numpy.int32)
        self._pad, self.longest = pad, longest
        places = [(0,)] * len(rows) if places is None else places
        self.num_places = numpy.array([len(each) for each in places], dtype=numpy.int64)
        self._place_ends = self.num_places.cumsum()
        self._places = numpy.fromiter((i for each in places for i in each), dtype=numpy.int64)

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def num_full(self) -> int:
        """Return how many rows have the largest length: nearly all of them were cut."""
        return int((self.lengths == self.longest).sum())

    def outputs_of(self, numbers: NDArray[numpy.int64]) -> NDArray[numpy.int64]:
        """Return where the outputs of these rows are among those of all rows, in their order."""
        pairs = zip(self._place_ends[numbers], self.num_places[numbers], strict=True)
        return numpy.concatenate([numpy.arange(end - size, end) for end, size in pairs])

    def batch(self, numbers: NDArray[numpy.int64]) -> Batch:
        """Return these rows, padded to the longest of them, rounded up to a multiple of 8."""
        lengths = self.lengths[numbers]
        width = min(-(-int(lengths.max()) // MULTIPLE) * MULTIPLE, self.longest)
        ids = numpy.full((len(numbers), width), self._pad, dtype=numpy.int64)
        for place, (end, length) in enumerate(zip(self._ends[numbers], lengths, strict=True)):
            ids[place, :length] = self._ids[end - length : end]
        starts = numpy.arange(len(numbers)).repeat(self.num_places[numbers]) * width
        positions = starts + self._places[self.outputs_of(numbers)]
        return Batch(*map(torch.from_numpy, (ids, lengths.astype(numpy.int32), positions)))


def training_batches(
    lengths: NDArray[numpy.int64], batch: int, *, seed: int, epoch: int
) -> list[NDArray[numpy.int64]]:
    """Return the row numbers of each batch of an epoch, every row once.

    The rows are shuffled, sorted by length within pools of `POOL_BATCHES` batches, cut into
    batches, and the batches are shuffled. Only the batch with the remainder is smaller.
    """
    generator = numpy.random.default_rng([seed, epoch, ORDER_STREAM])
    order = generator.permutation(len(lengths))
    batches = []
    for start in range(0, len(order), batch * POOL_BATCHES):
        pool = order[start : start + batch * POOL_BATCHES]
        pool = pool[numpy.argsort(lengths[pool], kind="stable")]
        batches += [pool[first : first + batch] for first in range(0, len(pool), batch)]
    return [batches[place] for place in generator.permutation(len(batches))]


def evaluation_batches(lengths: NDArray[numpy.int64], batch: int) -> list[NDArray[numpy.int64]]:
    """Return the row numbers of each batch, in the order of the lengths."""
    order = numpy.argsort(lengths, kind="stable")
    return [order[first : first + batch] for first in range(0, len(order), batch)]
