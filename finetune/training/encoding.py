"""Tokenize the examples of a task."""

from collections.abc import Sequence
from dataclasses import dataclass

from data_prep.text.text_encoder import TextEncoder
from finetune.tasks.task import Example, Label, Task, TaskData
from finetune.training.batches import TokenRows
from finetune.training.targets import Target, target_of


@dataclass(frozen=True)
class EncodedSplit:
    """Token ids of a split, with the labels and identities of its examples."""

    rows: TokenRows
    labels: list[Label]  # empty in a test split
    identities: list[str]


@dataclass(frozen=True)
class EncodedTask:
    """A task as a model reads it."""

    task: Task
    target: Target
    train: EncodedSplit
    development: dict[str, EncodedSplit]
    test: dict[str, EncodedSplit]


def encode_task(
    data: TaskData,
    text_encoder: TextEncoder,
    *,
    sequence_length: int,
    orders: int = 1,
    balanced: bool = False,
) -> EncodedTask:
    """Turn every example into [CLS] text [SEP] (text [SEP]), cut to `sequence_length`.

    With `orders` = 2 each training example is two rows: as it is, and with its texts exchanged.
    `balanced`: see `target_of`.
    """

    def split(examples: Sequence[Example]) -> EncodedSplit:
        ids = [text_encoder.ids(*example.texts, max_length=sequence_length) for example in examples]
        return EncodedSplit(
            TokenRows(ids, pad=text_encoder.pad, longest=sequence_length),
            [example.label for example in examples if example.label is not None],
            [example.identity for example in examples],
        )

    swapped = [example._replace(texts=example.texts[::-1]) for example in data.train]
    train = split([*data.train, *(swapped if orders == 2 else [])])
    return EncodedTask(
        data.task,
        target_of(data.task, train.labels, balanced=balanced),
        train,
        {name: split(examples) for name, examples in data.development.items()},
        {name: split(examples) for name, examples in data.test.items()},
    )
