"""Micro-batches of random ids, of the shape of real ones, where there are no shards yet."""

import torch
from torch.utils.data import Dataset

from data_prep.masking import predictions_per_sequence
from pretrain.config.settings import RunSettings
from pretrain.data.batches import MaskedBatch


class RandomBatches(Dataset[MaskedBatch]):
    """Batch n is a function of n: torch's own generator is not used."""

    def __init__(self, settings: RunSettings, micro_sequences: int) -> None:
        self.shape = (micro_sequences, settings.data.sequence_length)
        self.vocabulary_size = settings.model.vocabulary_size
        self.per_row = predictions_per_sequence(self.shape[1], settings.data.masked_probability)

    def __getitem__(self, index: int) -> MaskedBatch:
        """Return random ids, of which as many are predicted in each row as of a real one."""
        generator = torch.Generator().manual_seed(index)
        ids = torch.randint(self.vocabulary_size, self.shape, generator=generator)
        columns = torch.rand(self.shape, generator=generator).argsort(dim=1)[:, : self.per_row]
        row_starts = torch.arange(self.shape[0])[:, None] * self.shape[1]
        positions = (columns.sort(dim=1).values + row_starts).flatten()
        return MaskedBatch(ids, positions, ids.flatten()[positions])
