"""A fine-tuned model in use: from texts to classes with probabilities, or to numbers."""

import math
from collections.abc import Iterator, Sequence

import numpy
import torch
from numpy.typing import NDArray
from scipy.special import softmax

from finetune.models.kept_model import KeptModel
from finetune.training.batches import POOL_BATCHES, TokenRows
from finetune.training.model import EVALUATION_BATCH, attention_on, logits_of_rows

# Texts that are sorted by length, cut into batches and written together.
CHUNK = POOL_BATCHES * EVALUATION_BATCH
DIGITS = 7  # those of fp32


class Predictor:
    """A fine-tuned model on a device, in fp32 on every machine.

    A text is a tuple of one, or of a pair.
    """

    def __init__(self, kept: KeptModel, device: torch.device) -> None:
        self.record, self._text_encoder = kept.record, kept.text_encoder
        self.num_cut = 0  # texts, so far, that fill the longest row
        self._model = kept.restored(attention=attention_on(device)).to(device)

    def predictions(self, texts: Sequence[tuple[str, ...]]) -> Iterator[list[str | float]]:
        """Yield of each text the label and the probability of every label, or the value."""
        record = self.record
        for start in range(0, len(texts), CHUNK):
            outputs = self.outputs(texts[start : start + CHUNK])
            if record.labels:
                shares_NC = softmax(outputs, axis=1)
                for best, shares in zip(outputs.argmax(axis=1), shares_NC, strict=True):
                    yield [record.labels[best], *(float(f"{one:.{DIGITS}g}") for one in shares)]
                continue
            # Beside a mean such as a year, the digits that count are those of the spread.
            places = DIGITS - 1 - math.floor(math.log10(record.spread))
            for value in map(float, outputs):
                rounded = round(value, places) if record.centre else float(f"{value:.{DIGITS}g}")
                yield [rounded]

    def outputs(self, texts: Sequence[tuple[str, ...]]) -> NDArray[numpy.float64]:
        """Return the logits N x C, or in a regression N numbers in the units of the labels."""
        length = self.record.sequence_length
        ids = [self._text_encoder.pair_ids(*text, max_length=length) for text in texts]
        rows = TokenRows(ids, pad=self._text_encoder.pad, longest=length)
        self.num_cut += rows.num_full
        logits_NC = logits_of_rows(self._model, rows, uses_bf16=False)
        return self.record.target.outputs(logits_NC)
