"""Shards to batches. A sample is addressed by (seed, epoch, global index): no state to save.

Optimizer step t takes the global samples t*G .. (t+1)*G - 1, sample g is entry g mod N of the
permutation of epoch g div N. So a run that is resumed, in the middle of a shard and on another
number of ranks too, sees the samples that the straight run would have seen.
"""

import itertools
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from data_prep.masking import IGNORED, mask_sequences, predictions_per_sequence
from data_prep.shards.format import ShardSet, SplitSequences
from pretrain.config.settings import RunSettings
from pretrain.data.shards import HELD_OUT_SEED, masking_of, num_held_out_sequences

# Separates the order of the samples from every other use of the seed.
ORDER_STREAM = 0x6F72646572


class MaskedBatch(NamedTuple):
    """The input of the model: ids_BS, and flat positions_M and labels_M of the predictions."""

    ids_BS: Tensor
    positions_M: Tensor
    labels_M: Tensor

    def num_predictions(self) -> int:
        """Return how many labels are not IGNORED; for a batch that is still on the host."""
        return int(self.labels_M.ne(IGNORED).sum())


class Place(NamedTuple):
    """Which samples are this rank's: ranks take turns, `micro_sequences` at a time."""

    micro_sequences: int
    rank: int
    world_size: int

    def samples(self, index: int) -> NDArray[numpy.int64]:
        """Return the global samples of the `index`-th micro-batch of this rank."""
        first = (index * self.world_size + self.rank) * self.micro_sequences
        return numpy.arange(first, first + self.micro_sequences)


class TrainingBatches(Dataset[MaskedBatch]):
    """Item `step * accumulation + i` is micro-batch i of an optimizer step, for one rank."""

    def __init__(self, shards: ShardSet, settings: RunSettings, place: Place) -> None:
        self.sequences = MaskedSplit(shards, "train", settings)
        self.seed, self.place = settings.seed, place

    def __getitem__(self, index: int) -> MaskedBatch:
        """Return the micro-batch; it may span two epochs."""
        samples, size = self.place.samples(index), self.sequences.split.num_sequences
        epochs, numbers = sequences_of_samples(samples, size, self.seed)
        return self.sequences.batch(numbers, seed=self.seed, epoch=epochs)


class HeldOutBatches(Dataset[MaskedBatch]):
    """The held-out sequences of one rank, with fixed masks; all ranks have as many batches.

    All batches have one shape, so that compiled blocks are compiled once for them: the last ones
    are filled with a sequence in which nothing is predicted.
    """

    def __init__(self, shards: ShardSet, settings: RunSettings, place: Place) -> None:
        self.sequences = MaskedSplit(shards, "valid", settings)
        self.num_sequences, self.place = num_held_out_sequences(shards, settings), place

    def __len__(self) -> int:
        return -(-self.num_sequences // (self.place.micro_sequences * self.place.world_size))

    def __getitem__(self, index: int) -> MaskedBatch:
        """Return batch `index` of this rank."""
        places = self.place.samples(index)
        # Spread over the whole split: its beginning may be about one thing only.
        existing = numpy.minimum(places, self.num_sequences - 1)
        numbers = existing * self.sequences.split.num_sequences // self.num_sequences
        batch = self.sequences.batch(numbers, seed=HELD_OUT_SEED, epoch=0)
        labels = batch.labels_M.view(len(places), -1)
        labels[torch.from_numpy(places >= self.num_sequences)] = IGNORED
        return batch


class MaskedSplit:
    """One split of the shards, read by number and masked."""

    def __init__(
        self, shards: ShardSet, split: Literal["train", "valid"], settings: RunSettings
    ) -> None:
        self.split: SplitSequences = shards.split(split)
        self.tokenizer = shards.manifest.tokenizer
        self.masking = masking_of(shards, settings)

    def batch(
        self, numbers: NDArray[Any], *, seed: int, epoch: int | NDArray[numpy.int64]
    ) -> MaskedBatch:
        """Return these sequences, masked as a function of (seed, epoch, number)."""
        masked = mask_sequences(
            self.split.read(numbers),
            numbers,
            seed=seed,
            epoch=epoch,
            tokenizer=self.tokenizer,
            masking=self.masking,
        )
        starts = numpy.arange(len(numbers))[:, None] * masked.ids.shape[1]
        return MaskedBatch(
            torch.from_numpy(masked.ids),
            torch.from_numpy((masked.positions + starts).ravel()),
            torch.from_numpy(masked.labels.ravel()),
        )


def sequences_of_samples(
    samples: NDArray[numpy.int64], num_sequences: int, seed: int
) -> tuple[NDArray[numpy.int64], NDArray[Any]]:
    """Return the epoch that each of these ascending global samples lies in, and its sequence."""
    epochs, places = numpy.divmod(samples, num_sequences)
    of_epochs = [
        epoch_order(num_sequences, seed, epoch)[places[epochs == epoch]]
        for epoch in numpy.unique(epochs).tolist()
    ]
    return epochs, numpy.concatenate(of_epochs)


@lru_cache(maxsize=2)
def epoch_order(num_sequences: int, seed: int, epoch: int) -> NDArray[numpy.uint32]:
    """Return the permutation of sequence numbers in which an epoch reads them [num_sequences].

    It takes 4 bytes a sequence in each process that makes batches, twice that from the second epoch
    on: 4 GB for a billion. There may be up to 2^32.
    """
    key = numpy.array([seed, ORDER_STREAM], dtype=numpy.uint64)
    counter = numpy.array([0, 0, epoch, 0], dtype=numpy.uint64)
    generator = numpy.random.Generator(numpy.random.Philox(key=key, counter=counter))
    order = numpy.arange(num_sequences, dtype=numpy.uint32)
    generator.shuffle(order)  # what permutation() does to a copy
    return order


def batches_from(
    dataset: Dataset[MaskedBatch], first: int, end: int | None, *, pin_memory: bool
) -> Iterator[MaskedBatch]:
    """Yield the items first .. end - 1; a resumed run skips nothing, it starts there."""
    for index in itertools.count(first) if end is None else range(first, end):
        batch = dataset[index]
        yield MaskedBatch(*(part.pin_memory() for part in batch)) if pin_memory else batch


def predictions_per_batch(settings: RunSettings) -> int:
    """Return the number of predicted positions in one global batch."""
    predictions = predictions_per_sequence(
        settings.data.sequence_length, settings.data.masked_probability
    )
    return predictions * settings.batch.global_sequences
