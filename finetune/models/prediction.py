"""A fine-tuned model in use: from files of texts to classes with probabilities, or to numbers."""

import csv
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

import numpy
import torch
from numpy.typing import NDArray

from finetune.models.kept_model import KeptModel
from finetune.models.kept_record import KeptRecord
from finetune.tasks.examples import text_in
from finetune.tasks.tables import read_rows
from finetune.training.batches import POOL_BATCHES, TokenRows
from finetune.training.evaluation import EVALUATION_BATCH, attention_on, logits_of_rows
from pretrain.distributed.unusable_gpus import refuse_unusable_gpus

# Texts that are sorted by length, cut into batches and written together.
CHUNK = POOL_BATCHES * EVALUATION_BATCH
DIGITS = 7  # those of fp32


def default_device() -> torch.device:
    """Return the first GPU, or the CPU where there is none.

    Raises:
        ConfigError: torch cannot use the GPUs of this machine.
    """
    refuse_unusable_gpus()
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def read_texts(file: Path, columns: Sequence[str], suffix: str | None) -> list[tuple[str, ...]]:
    """Return the text or the pair in each row of a file; see `read_rows`.

    Raises:
        TaskError: the file cannot be read, lacks a column, or holds no rows.
    """
    rows = read_rows(file, columns, suffix=suffix)
    return [tuple(text_in(row, column, file) for column in columns) for row in rows]


class Predictor:
    """A fine-tuned model on a device, in fp32 on every machine.

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


def write_predictions(
    record: KeptRecord, chunks: Iterable[NDArray[numpy.float64]], stream: TextIO, *, as_json: bool
) -> None:
    """Write a line for each text: `label` and the probability of each label, or `value`.

    Args:
        record: of the model.
        chunks: see `Predictor.chunks`.
        stream: that is written to.
        as_json: lines of JSON, in place of rows of CSV.
    """
    table = csv.writer(stream, lineterminator="\n")
    if not as_json:
        names = [f"probability_{label}" for label in record.labels]
        table.writerow(["label", *names] if record.labels else ["value"])
    for first, *others in itertools.chain.from_iterable(_rows(record, each) for each in chunks):
        by_label = dict(zip(record.labels, others, strict=True))
        found = {"label": first, "probabilities": by_label} if record.labels else {"value": first}
        if as_json:
            stream.write(json.dumps(found, ensure_ascii=False) + "\n")
        else:
            table.writerow([first, *others])


def _rows(record: KeptRecord, outputs: NDArray[numpy.float64]) -> Iterator[list[str | float]]:
    """Yield the number of each text, or its label and probabilities, with the digits of fp32."""
    if not record.labels:
        for value in outputs:
            yield [float(f"{value:.{DIGITS}g}")]
        return
    from scipy.special import softmax

    for best, row in zip(outputs.argmax(axis=1), softmax(outputs, axis=1), strict=True):
        yield [record.labels[best], *(float(f"{share:.{DIGITS}g}") for share in row)]
