"""Tokenize the examples of a task."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy
from numpy.typing import NDArray

from data_prep.text.text_encoder import TextEncoder
from finetune.tasks.task import OF_TOKENS, Example, Kind, Label, Task, TaskData
from finetune.training.batches import TokenRows
from finetune.training.targets import Target, target_of
from finetune.training.token_rows import TokenRow, tagged_windows, windows


@dataclass(frozen=True)
class EncodedSplit:
    """Token ids of a split, and its examples; of tags and answers, what each row means."""

    rows: TokenRows
    examples: Sequence[Example]
    meaning: Sequence[TokenRow] = ()

    @property
    def labels(self) -> list[Label]:
        """Return the labels of the examples; none in a test split."""
        return [each.label for each in self.examples if each.label is not None]

    def label(self, row: int) -> Any:
        """Return what the loss of a row takes."""
        return self.meaning[row].label if self.meaning else self.examples[row].label

    def num_begun(self, rows: NDArray[numpy.int64]) -> int:
        """Return of how many examples these are the first rows."""
        if not self.meaning:
            return len(rows)
        own = self.meaning
        return sum(n == 0 or own[n - 1].example < own[n].example for n in rows.tolist())


@dataclass(frozen=True)
class EncodedTask:
    """A task as a model reads it."""

    task: Task
    target: Target
    train: EncodedSplit
    development: dict[str, EncodedSplit]
    test: dict[str, EncodedSplit]
    orders: int = 1  # of the texts of each training example, one after the other


def encode_task(
    data: TaskData,
    text_encoder: TextEncoder,
    *,
    sequence_length: int,
    orders: int = 1,
    balanced: bool = False,
) -> EncodedTask:
    """Turn every example into [CLS] text [SEP] (text [SEP]), cut to `sequence_length`.

    Tags and answers: `tagged_windows`, `windows`. With `orders` = 2 each training example is two
    rows: as it is, and with its texts exchanged. `balanced`: see `target_of`.
    """

    def split(examples: Sequence[Example]) -> EncodedSplit:
        return encode_split(examples, data.task.kind, text_encoder, sequence_length)

    swapped = (example._replace(texts=example.texts[::-1]) for example in data.train)
    train = split([*data.train, *(swapped if orders == 2 else [])])
    return EncodedTask(
        data.task,
        target_of(data.task, train.labels, balanced=balanced),
        train,
        {name: split(examples) for name, examples in data.development.items()},
        {name: split(examples) for name, examples in data.test.items()},
        orders,
    )


def encode_split(
    examples: Sequence[Example], kind: Kind | None, text_encoder: TextEncoder, length: int
) -> EncodedSplit:
    """Return the rows of examples, of at most `length` tokens; see `encode_task`."""
    if kind in OF_TOKENS:
        rows_of = tagged_windows if kind == "tags" else windows
        found = [
            row
            for number, example in enumerate(examples)
            for row in rows_of(number, example, text_encoder, length)
        ]
        ids: list[Any] = [row.ids for row in found]
        places = [row.places for row in found]
    else:
        found, places = [], None
        listed = (text_encoder.ids(*each.texts, max_length=length) for each in examples)
        ids = [numpy.array(row, numpy.int32) for row in listed]
    rows = TokenRows(ids, pad=text_encoder.pad, longest=length, places=places)
    return EncodedSplit(rows, examples, found)
