"""From the examples of a task to rows of token ids, once for all runs with the same tokenizer."""

from collections.abc import Sequence
from dataclasses import dataclass

from finetune.batches import Rows
from finetune.targets import Classes, Target, scaled_values
from finetune.tasks import Example, Task, TaskData
from pretrain.words import Words


@dataclass(frozen=True)
class Split:
    """Rows and what is known of each."""

    rows: Rows
    labels: list[float]  # index of the class, or the value; empty in a test split
    identities: list[str]


@dataclass(frozen=True)
class EncodedTask:
    """All that a run reads."""

    task: Task
    target: Target
    train: Split
    development: dict[str, Split]
    test: dict[str, Split]


def encode_task(data: TaskData, words: Words, *, sequence_length: int) -> EncodedTask:
    """Turn every example into [CLS] text [SEP] (text [SEP]), cut to `sequence_length`."""

    def split(examples: Sequence[Example]) -> Split:
        return _encode(examples, words, sequence_length)

    train = split(data.train)
    return EncodedTask(
        data.task,
        target_of(data.task, train.labels),
        train,
        {name: split(examples) for name, examples in data.development.items()},
        {name: split(examples) for name, examples in data.test.items()},
    )


def target_of(task: Task, labels: Sequence[float]) -> Target:
    """Return what a model is trained towards on a task with these training labels."""
    if task.kind == "classification":
        return Classes(len(task.labels))
    return scaled_values(task.name, labels)


def _encode(examples: Sequence[Example], words: Words, sequence_length: int) -> Split:
    ids = [words.pair_ids(*example.texts, max_length=sequence_length) for example in examples]
    return Split(
        Rows(ids, pad=words.pad, longest=sequence_length),
        [example.label for example in examples if example.label is not None],
        [example.identity for example in examples],
    )
