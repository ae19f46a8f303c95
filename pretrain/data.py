"""Shards to batches. A sample is addressed by (seed, epoch, global index): no state to save.

Optimizer step t takes the global samples t*G .. (t+1)*G - 1, sample g is entry g mod N of the
permutation of epoch g div N. So a run that is resumed, in the middle of a shard and on another
number of ranks too, sees the samples that the straight run would have seen.
"""

import hashlib
import itertools
import multiprocessing
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from data_prep.masking import IGNORED, Masking, mask_rows, predictions_per_row
from data_prep.settings import BuildSettings, TextSettings
from data_prep.shards import ShardSet, Split, open_shards
from data_prep.tokenizer import TokenizerError, described_tokenizer, word_starts
from pretrain.config import ConfigError, RunSettings, explain
from pretrain.interruption import heed_only_the_parent, signals_held_back

# The masks of the held-out rows are the same for every run, whatever its seed.
HELD_OUT_SEED = 0

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


def build_settings(settings: RunSettings) -> BuildSettings:
    """Return what `data_prep` is asked to build for this run.

    Raises:
        ConfigError: a value is outside of what can be built.
    """
    data = settings.data
    if not data.corpus:
        raise ConfigError("this recipe brings no text; give yours with --corpus PATH...")
    text = data.model_dump(include=set(TextSettings.model_fields))
    try:
        return BuildSettings(**text, vocabulary_size=settings.model.vocabulary_size)
    except ValidationError as error:
        raise ConfigError(f"these shards cannot be built: {explain(error)}") from None


def shards_folder(settings: RunSettings) -> Path:
    """Return `data.shards`, or a folder named after everything that determines the shards.

    Raises:
        ConfigError: neither shards nor a corpus that can be built from are given.
    """
    if settings.data.shards is not None:
        return settings.data.shards
    build = build_settings(settings)
    # Whether a damaged file stops the build has no place in the name: a build goes on either way.
    content = build.model_dump_json(exclude={"damaged_files"})
    digest = hashlib.sha256(content.encode()).hexdigest()[:8]
    corpus = re.sub(r"[^\w-]+", "-", Path(build.corpus[0]).name.partition(".")[0])
    return Path("data") / f"{corpus}-s{build.sequence_length}-v{build.vocabulary_size}-{digest}"


def open_data(settings: RunSettings) -> ShardSet:
    """Open the shards of a run and check that they fit its model.

    Raises:
        ConfigError: they are missing, or of another sequence length or too large a vocabulary, or
            cannot be masked as asked.
        ShardError: they are damaged.
    """
    folder = shards_folder(settings)
    if not folder.is_dir():
        command = "python -m pretrain prepare RECIPE, with the same settings"
        if settings.data.shards is not None:
            command = f"python -m data_prep build --to {folder}, or leave data.shards out"
        raise ConfigError(f"there are no shards in {folder}; build them with: {command}")
    shards = open_shards(folder)
    manifest = shards.manifest
    if manifest.sequence_length != settings.data.sequence_length:
        raise ConfigError(
            f"the rows in {folder} have {manifest.sequence_length} tokens, but "
            f"data.sequence_length={settings.data.sequence_length}; make them equal"
        )
    if manifest.tokenizer.vocabulary_size > settings.model.vocabulary_size:
        raise ConfigError(
            f"the tokenizer in {folder} has {manifest.tokenizer.vocabulary_size} entries, more "
            f"than model.vocabulary_size={settings.model.vocabulary_size}; raise the latter"
        )
    masking_of(shards, settings)
    return shards


def masking_of(shards: ShardSet, settings: RunSettings) -> Masking:
    """Return what is hidden in the rows of these shards.

    Raises:
        ConfigError: their tokens do not tell where a word starts.
    """
    data, starts = settings.data, None
    if data.masking != "tokens":
        tokenizer = described_tokenizer(shards.tokenizer_path, shards.manifest.tokenizer)
        try:
            starts = word_starts(tokenizer)
        except TokenizerError as error:
            raise ConfigError(f"data.masking={data.masking!r}: {error}") from None
    return Masking(data.masking, data.masked_probability, data.mean_span_words, starts)


def held_out_fingerprint(shards: ShardSet, settings: RunSettings) -> str:
    """Return a hash of everything that a held-out loss depends on besides the model."""
    parts = (
        shards.split("valid").fingerprint(),
        num_held_out_rows(shards, settings),
        settings.data.masked_probability,
        settings.data.masking,
        settings.data.mean_span_words,
        HELD_OUT_SEED,
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def num_held_out_rows(shards: ShardSet, settings: RunSettings) -> int:
    """Return how many held-out rows an evaluation reads."""
    return min(settings.evaluation.rows, shards.split("valid").num_rows)


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
        self.rows = MaskedSplit(shards, "train", settings)
        self.seed, self.place = settings.seed, place

    def __getitem__(self, index: int) -> MaskedBatch:
        """Return the micro-batch; it may span two epochs."""
        samples = self.place.samples(index)
        batches = [
            self.rows.batch(numbers, seed=self.seed, epoch=epoch)
            for epoch, numbers in rows_of_samples(samples, self.rows.split.num_rows, self.seed)
        ]
        return batches[0] if len(batches) == 1 else _joined(batches)


class HeldOutBatches(Dataset[MaskedBatch]):
    """The held-out rows of one rank, with fixed masks; every rank has the same number of batches.

    Ranks without rows left get a batch in which nothing is predicted, so that all of them call
    the model equally often (ZeRO-3 exchanges weights in every call).
    """

    def __init__(self, shards: ShardSet, settings: RunSettings, place: Place) -> None:
        self.rows = MaskedSplit(shards, "valid", settings)
        self.num_rows, self.place = num_held_out_rows(shards, settings), place

    def __len__(self) -> int:
        return -(-self.num_rows // (self.place.micro_sequences * self.place.world_size))

    def __getitem__(self, index: int) -> MaskedBatch:
        """Return batch `index` of this rank."""
        places = self.place.samples(index)
        places = places[places < self.num_rows]
        if len(places):
            # Spread over the whole split: its beginning may be about one thing only.
            numbers = places * self.rows.split.num_rows // self.num_rows
            return self.rows.batch(numbers, seed=HELD_OUT_SEED, epoch=0)
        batch = self.rows.batch(numpy.zeros(1, dtype=numpy.int64), seed=HELD_OUT_SEED, epoch=0)
        return batch._replace(labels_M=torch.full_like(batch.labels_M, IGNORED))


class MaskedSplit:
    """One split of the shards, read by row number and masked."""

    def __init__(
        self, shards: ShardSet, split: Literal["train", "valid"], settings: RunSettings
    ) -> None:
        self.split: Split = shards.split(split)
        self.tokenizer = shards.manifest.tokenizer
        self.masking = masking_of(shards, settings)

    def batch(self, numbers: NDArray[numpy.int64], *, seed: int, epoch: int) -> MaskedBatch:
        """Return these rows, masked as a function of (seed, epoch, row number)."""
        masked = mask_rows(
            self.split.rows(numbers),
            numbers,
            seed=seed,
            epoch=epoch,
            tokenizer=self.tokenizer,
            masking=self.masking,
        )
        row_starts = numpy.arange(len(numbers))[:, None] * masked.ids.shape[1]
        return MaskedBatch(
            torch.from_numpy(masked.ids),
            torch.from_numpy((masked.positions + row_starts).ravel()),
            torch.from_numpy(masked.labels.ravel()),
        )


def rows_of_samples(
    samples: NDArray[numpy.int64], num_rows: int, seed: int
) -> list[tuple[int, NDArray[Any]]]:
    """Return each epoch that ascending global samples lie in, with the numbers of their rows."""
    epochs, places = numpy.divmod(samples, num_rows)
    return [
        (epoch, epoch_order(num_rows, seed, epoch)[places[epochs == epoch]])
        for epoch in numpy.unique(epochs).tolist()
    ]


@lru_cache(maxsize=2)
def epoch_order(num_rows: int, seed: int, epoch: int) -> NDArray[numpy.uint32]:
    """Return the permutation of the row numbers in which an epoch reads them [num_rows].

    It takes 4 bytes a row in each process that makes batches, twice that from the second epoch on:
    4 GB for a billion rows. There may be up to 2^32 rows.
    """
    key = numpy.array([seed, ORDER_STREAM], dtype=numpy.uint64)
    counter = numpy.array([0, 0, epoch, 0], dtype=numpy.uint64)
    generator = numpy.random.Generator(numpy.random.Philox(key=key, counter=counter))
    order = numpy.arange(num_rows, dtype=numpy.uint32)
    generator.shuffle(order)  # what permutation() does to a copy
    return order


def batches_from(
    dataset: Dataset[MaskedBatch], first: int, end: int | None, *, workers: int, pin_memory: bool
) -> Iterator[MaskedBatch]:
    """Iterate over the items first .. end - 1; a resumed run skips nothing, it starts there.

    Without an end, workers make a few batches more than are taken.
    """
    loader: DataLoader[MaskedBatch] = DataLoader(
        dataset,
        batch_size=None,
        sampler=itertools.count(first) if end is None else range(first, end),
        num_workers=workers,
        pin_memory=pin_memory,
        worker_init_fn=_begin_worker,
    )
    with signals_held_back():  # until the workers have made themselves deaf to them
        return iter(loader)


def predictions_per_batch(settings: RunSettings) -> int:
    """Return the number of predicted positions in one global batch."""
    per_row = predictions_per_row(settings.data.sequence_length, settings.data.masked_probability)
    return per_row * settings.batch.global_sequences


def _begin_worker(number: int) -> None:
    del number
    parent = multiprocessing.parent_process()
    assert parent is not None and parent.pid is not None
    heed_only_the_parent(parent.pid)


def _joined(batches: list[MaskedBatch]) -> MaskedBatch:
    offset, positions = 0, []
    for batch in batches:
        positions.append(batch.positions_M + offset)
        offset += batch.ids_BS.numel()
    return MaskedBatch(
        torch.cat([batch.ids_BS for batch in batches]),
        torch.cat(positions),
        torch.cat([batch.labels_M for batch in batches]),
    )
