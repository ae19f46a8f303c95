"""Rows of token ids, and the batches that they are put into.

Rows of nearly the same length go together, so that little is padding; which ones, and in which
order, depends on the seed and the epoch alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from finetune.tasks.glue import Example, Task, TaskData
from finetune.training.targets import Classes, Target, scaled_values
from pretrain.convert.text_encoder import TextEncoder

# Rows are sorted within pools of so many batches. On RTE 45 % of the tokens are padding in random
# batches, 8 % at 16 and 5 % in one pool, where the same rows would meet in every epoch.
POOL_BATCHES = 16

# Padding to a multiple: few different shapes, and aligned rows for the kernels of a GPU.
MULTIPLE = 8

# Separates the order of the rows from every other use of the seed.
ORDER_STREAM = 0x6F72646572


class Batch(NamedTuple):
    """Rows side by side: ids_BS int64, lengths_B int32."""

    ids_BS: Tensor
    lengths_B: Tensor


class Rows:
    """Token ids of many rows, kept end to end: a list of lists would take ten times the memory."""

    def __init__(self, rows: Sequence[Sequence[int]], *, pad: int, longest: int) -> None:
        """Take the rows.

        Args:
            rows: token ids.
            pad: id that fills up a row.
            longest: no row is padded beyond it, the end of the model's position table.
        """
        self.lengths = numpy.array([len(row) for row in rows], dtype=numpy.int64)
        assert len(rows) and self.lengths.min() > 0 and self.lengths.max() <= longest
        self._ends = self.lengths.cumsum()
        self._ids = numpy.fromiter((i for row in rows for i in row), dtype=numpy.int32)
        self._pad, self.longest = pad, longest

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def num_full(self) -> int:
        """Return how many rows are as long as a row may be: nearly all of them were cut."""
        return int((self.lengths == self.longest).sum())

    def batch(self, numbers: NDArray[numpy.int64]) -> Batch:
        """Return these rows, padded to the longest of them and on to a multiple of 8."""
        lengths = self.lengths[numbers]
        width = min(-(-int(lengths.max()) // MULTIPLE) * MULTIPLE, self.longest)
        ids = numpy.full((len(numbers), width), self._pad, dtype=numpy.int64)
        for place, (end, length) in enumerate(zip(self._ends[numbers], lengths, strict=True)):
            ids[place, :length] = self._ids[end - length : end]
        return Batch(torch.from_numpy(ids), torch.from_numpy(lengths.astype(numpy.int32)))


def training_batches(
    lengths: NDArray[numpy.int64], batch: int, *, seed: int, epoch: int
) -> list[NDArray[numpy.int64]]:
    """Return the row numbers of each batch of an epoch, every row once.

    The rows are shuffled, sorted by length within pools of `POOL_BATCHES` batches, cut into
    batches, and these are shuffled: only the batch that holds the remainder is smaller.
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


@dataclass(frozen=True)
class Split:
    """Rows and what is known of each."""

    rows: Rows
    labels: list[float]  # index of the class, or the value; empty in a test split
    identities: list[str]


@dataclass(frozen=True)
class EncodedTask:
    """All that a run reads."""

    task: Task
    target: Target
    train: Split
    development: dict[str, Split]
    test: dict[str, Split]


def encode_task(data: TaskData, text_encoder: TextEncoder, *, sequence_length: int) -> EncodedTask:
    """Turn every example into [CLS] text [SEP] (text [SEP]), cut to `sequence_length`."""

    def split(examples: Sequence[Example]) -> Split:
        return _encode(examples, text_encoder, sequence_length)

    train = split(data.train)
    return EncodedTask(
        data.task,
        target_of(data.task, train.labels),
        train,
        {name: split(examples) for name, examples in data.development.items()},
        {name: split(examples) for name, examples in data.test.items()},
    )


def target_of(task: Task, labels: Sequence[float]) -> Target:
    """Return what a model is trained towards on a task with these training labels."""
    if task.kind == "classification":
        return Classes(len(task.labels))
    return scaled_values(task.name, labels)


def _encode(examples: Sequence[Example], text_encoder: TextEncoder, sequence_length: int) -> Split:
    ids = [
        text_encoder.pair_ids(*example.texts, max_length=sequence_length) for example in examples
    ]
    return Split(
        Rows(ids, pad=text_encoder.pad, longest=sequence_length),
        [example.label for example in examples if example.label is not None],
        [example.identity for example in examples],
    )
