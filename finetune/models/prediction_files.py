"""The files of `predict`: texts come in, classes with their probabilities or numbers go out."""

import csv
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy
from numpy.typing import NDArray

from finetune.models.kept_model import KeptRecord
from finetune.tasks.examples import example_of
from finetune.tasks.tables import (
    FileRow,
    named_rows,
    read_rows,
    tab_separated,
    text_of,
    whole_lines,
)
from finetune.tasks.task import Task, TaskError

STDIN = Path("/dev/stdin")
LINES = "lines"  # one text in each, or a pair with a tab between
DIGITS = 7  # those of fp32


def read_texts(
    record: KeptRecord, file: Path, columns: Sequence[str], file_format: str | None
) -> list[tuple[str, ...]]:
    """Return the text or the pair in each row of a file.

    Args:
        record: of the model.
        file: in a format of a task's files, or of `LINES`.
        columns: of the texts.
        file_format: such as "csv" or "lines"; None: as the suffix says, .txt is lines.

    Raises:
        TaskError: the file cannot be read, lacks a column, or holds no rows.
    """
    task = Task(record.task, record.labels, (), tuple(columns), identity=None)
    rows = [
        example_of(task, row, file, number=number, is_labelled=False).texts
        for number, row in enumerate(_rows(file, columns, file_format))
    ]
    if not rows:
        raise TaskError(f"{file} holds no rows; give a file with texts")
    return rows


def _rows(file: Path, columns: Sequence[str], file_format: str | None) -> Iterator[FileRow]:
    suffix = file.suffix.lower() if file_format is None else f".{file_format}"
    if suffix in (f".{LINES}", ".txt"):
        rows_of = tab_separated if len(columns) == 2 else whole_lines  # a tab in a text is text
        return named_rows(file, rows_of(text_of(file)), columns, header=columns)
    return read_rows(file, columns, suffix=suffix)


class PredictionWriter:
    """Writes predictions as rows of CSV, or as lines of JSON.

    A class is written as `label` and the probability of each label, a number as `value`.

    Args:
        record: of the model.
        stream: that is written to.
        output_format: "csv" or "jsonl".
    """

    def __init__(self, record: KeptRecord, stream: TextIO, output_format: str) -> None:
        self._labels, self._stream = record.labels, stream
        # Beside a mean such as a year, the digits that count are those of the spread.
        self._decimals = DIGITS - 1 - math.floor(math.log10(record.spread))
        self._csv = csv.writer(stream, lineterminator="\n") if output_format == "csv" else None
        if self._csv is not None:
            names = [f"probability_{label}" for label in self._labels]
            self._csv.writerow(["label", *names] if self._labels else ["value"])

    def write(self, outputs: NDArray[numpy.float64]) -> None:
        """Write one line for each row of the outputs; see `Predictor.outputs`."""
        if not self._labels:
            for value in outputs:
                self._line({"value": round(float(value), self._decimals)})
            return
        from scipy.special import softmax

        for label, row in zip(outputs.argmax(axis=1), softmax(outputs, axis=1), strict=True):
            rounded = [float(f"{value:.{DIGITS}g}") for value in row]
            by_label = dict(zip(self._labels, rounded, strict=True))
            self._line({"label": self._labels[label], "probabilities": by_label})

    def _line(self, found: dict[str, Any]) -> None:
        if self._csv is None:
            self._stream.write(json.dumps(found, ensure_ascii=False) + "\n")
        else:
            first, *others = found.values()
            self._csv.writerow([first, *(p for by_label in others for p in by_label.values())])
