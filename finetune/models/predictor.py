"""A fine-tuned model in use: from texts to logits, classes and numbers."""

from collections.abc import Iterator, Sequence

import numpy
import torch
from numpy.typing import NDArray

from finetune.models.kept_model import KeptModel
from finetune.training.batches import POOL_BATCHES, TokenRows
from finetune.training.evaluation import (
    EVALUATION_BATCH,
    attention_on,
    logits_of_rows,
)
from pretrain.distributed.unusable_gpus import refuse_unusable_gpus

# Texts that are sorted by length, cut into batches and written together.
CHUNK = POOL_BATCHES * EVALUATION_BATCH


def default_device() -> torch.device:
    """Return the first GPU, or the CPU where there is none.

    Raises:
        ConfigError: torch cannot use the GPUs of this machine.
    """
    refuse_unusable_gpus()
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Predictor:
    """A fine-tuned model on a device, in fp32 on every machine, as exports are.

    A text is a tuple of one, or of a pair.
    """

    def __init__(self, kept: KeptModel, device: torch.device) -> None:
        self.record, self._text_encoder = kept.record, kept.text_encoder
        self.num_cut = 0  # texts, so far, that fill the longest row
        self._model = kept.restored(attention=attention_on(device)).to(device)

    def chunks(self, texts: Sequence[tuple[str, ...]]) -> Iterator[NDArray[numpy.float64]]:
        """Yield the outputs for `CHUNK` texts after the other, in their order; see `outputs`."""
        for start in range(0, len(texts), CHUNK):
            yield self.outputs(texts[start : start + CHUNK])

    def outputs(self, texts: Sequence[tuple[str, ...]]) -> NDArray[numpy.float64]:
        """Return the logits N x C, or in a regression N numbers in the units of the labels."""
        length = self.record.sequence_length
        ids = [self._text_encoder.pair_ids(*text, max_length=length) for text in texts]
        rows = TokenRows(ids, pad=self._text_encoder.pad, longest=length)
        self.num_cut += rows.num_full
        logits_NC = logits_of_rows(self._model, rows, uses_bf16=False)
        return self.record.target.outputs(logits_NC)
