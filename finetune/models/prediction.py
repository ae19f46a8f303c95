"""A fine-tuned model in use: from texts to classes with probabilities, or to numbers."""

import csv
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TextIO

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

    def predictions(self, texts: Sequence[tuple[str, ...]]) -> Iterator[dict[str, Any]]:
        """Yield of each text the label and all `probabilities`, or the `value`, with 7 digits."""
        for start in range(0, len(texts), CHUNK):
            outputs = self.outputs(texts[start : start + CHUNK])
            if not self.record.labels:
                yield from ({"value": self._rounded(float(value))} for value in outputs)
                continue
            for best, row in zip(outputs.argmax(axis=1), softmax(outputs, axis=1), strict=True):
                shares = [float(f"{share:.{DIGITS}g}") for share in row]
                by_label = dict(zip(self.record.labels, shares, strict=True))
                yield {"label": self.record.labels[best], "probabilities": by_label}

    def _rounded(self, value: float) -> float:
        if not self.record.centre:
            return float(f"{value:.{DIGITS}g}")
        # Beside a mean such as a year, the digits that count are those of the spread.
        return round(value, DIGITS - 1 - math.floor(math.log10(self.record.spread)))

    def outputs(self, texts: Sequence[tuple[str, ...]]) -> NDArray[numpy.float64]:
        """Return the logits N x C, or in a regression N numbers in the units of the labels."""
        length = self.record.sequence_length
        ids = [self._text_encoder.pair_ids(*text, max_length=length) for text in texts]
        rows = TokenRows(ids, pad=self._text_encoder.pad, longest=length)
        self.num_cut += rows.num_full
        logits_NC = logits_of_rows(self._model, rows, uses_bf16=False)
        return self.record.target.outputs(logits_NC)


def write_predictions(
    predictions: Iterable[dict[str, Any]], labels: Sequence[str], stream: TextIO, *, as_json: bool
) -> None:
    """Write a line for each prediction: of JSON, or of CSV with a column per probability."""
    table = csv.writer(stream, lineterminator="\n")
    if not as_json:
        table.writerow(
            ["label", *(f"probability_{each}" for each in labels)] if labels else ["value"]
        )
    for found in predictions:
        if as_json:
            stream.write(json.dumps(found, ensure_ascii=False) + "\n")
        else:
            first, *others = found.values()
            table.writerow([first, *others[0].values()] if others else [first])
