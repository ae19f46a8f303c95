"""A task of the user's own: classification or regression of one text or a pair, from three files.

The labels are those of the training file. Without a development file a tenth of the training rows
is held out. Which rows depends on their texts alone: equal texts stay together, and adding rows
never moves a row between training and development set.
"""

import hashlib
import math
from collections.abc import Iterable
from pathlib import Path

from pydantic import Field, field_validator, model_validator

from finetune.tasks.catalog import SUITES
from finetune.tasks.examples import example_of, label_word
from finetune.tasks.tables import FileRow, read_rows, shortened
from finetune.tasks.task import Example, Task, TaskData, TaskError, plain
from pretrain.config.settings import Section

HELD_OUT_SHARE = 0.1
# More different numbers than a scale of grades has: they are measured values, not classes.
MAX_FRACTIONAL_LABELS = 10


class OwnTask(Section):
    """The files of a task of the user's own, and which columns predict which."""

    name: str = Field(
        "own", pattern=r"^\w[\w.-]*$", description="name of the task in tables and folders"
    )
    train: Path = Field(description="examples to learn from; .tsv, .csv or .jsonl")
    dev: Path | None = Field(
        None, description="examples to score on; none: a tenth of the training file"
    )
    test: Path | None = Field(None, description="examples to predict, without labels")
    texts: tuple[str, ...] = Field(
        ("text",), min_length=1, max_length=2, description="columns of the text or of the pair"
    )
    label: str = Field("label", description="column that is predicted")
    regression: bool = Field(False, description="labels are numbers, and predicted as such")

    @field_validator("name")
    @classmethod
    def _is_not_in_a_suite(cls, name: str) -> str:
        for suite in SUITES.values():
            if plain(name) in map(plain, suite.tasks):
                raise ValueError(f"name={name!r} is a task of {suite.name}; choose another name")
        return name

    @model_validator(mode="after")
    def _check_columns(self) -> "OwnTask":
        columns = (*self.texts, self.label)
        if len(set(columns)) < len(columns):
            raise ValueError(f"texts and label name a column twice: {', '.join(columns)}")
        return self


def read_own(own: OwnTask) -> TaskData:
    """Read a task of the user's own.

    Raises:
        TaskError: a file cannot be read, lacks a column or rows, or its labels are unsuitable.
    """
    columns = (*own.texts, own.label)
    rows = list(read_rows(own.train, columns))
    task = _task_of(own, rows)
    train = _examples(task, rows, own.train)
    test = {}
    if own.test is not None:
        test["test"] = _examples(task, read_rows(own.test, own.texts), own.test, is_labelled=False)
    if own.dev is not None:
        development = _examples(task, read_rows(own.dev, columns), own.dev)
        return TaskData(task, train, {"dev": development}, test)
    held_out = [example for example in train if is_held_out(example.texts)]
    kept = [example for example in train if not is_held_out(example.texts)]
    if not held_out or not kept:
        raise TaskError(
            f"{own.train}: {len(train)} rows are too few to hold some out; give a development file"
        )
    note = (
        f"no development file: {len(held_out):,} of the {len(train):,} rows of {own.train} are "
        "held out, chosen by a hash of their text"
    )
    return TaskData(task, kept, {"dev": held_out}, test, (note,))


def is_held_out(texts: tuple[str, ...]) -> bool:
    """Return whether an example is held out if there is no development file."""
    digest = hashlib.sha256("\0".join(texts).encode()).digest()
    return int.from_bytes(digest[:8], "big") < HELD_OUT_SHARE * 2**64


def _task_of(own: OwnTask, rows: list[FileRow]) -> Task:
    words = {label_word(row, own.label, own.train) for row in rows}
    labels: tuple[str, ...] = ()
    if len(words) == 1:
        raise TaskError(
            f"{own.train}: column {own.label!r} holds {shortened(min(words))!r} in every row: "
            "there is nothing to learn; choose another column"
        )
    if not own.regression:
        _check_classes(words, len(rows), own)
        labels = _sorted(words)
    return Task(
        own.name,
        labels,
        ("pearson", "spearman") if own.regression else ("accuracy", "macro_f1"),
        texts=own.texts,
        label=own.label,
        identity=None,
    )


def _check_classes(words: set[str], num_rows: int, own: OwnTask) -> None:
    where = f"{own.train}: column {own.label!r}"
    numbers = [number for number in map(_number, words) if number is not None]
    fractions = [number for number in numbers if not number.is_integer()]
    if len(numbers) == len(words) > MAX_FRACTIONAL_LABELS and fractions:
        raise TaskError(
            f"{where} holds {len(words):,} different numbers, such as {min(fractions)}, not "
            "classes; predict numbers with --regression, or choose another column"
        )
    by_letters: dict[str, str] = {}
    for word in sorted(words):
        other = by_letters.setdefault(word.strip(), word)
        if other != word:
            raise TaskError(
                f"{where} holds {shortened(other)!r} and {shortened(word)!r}, which would be two "
                "classes; remove the spaces"
            )
    if len(words) > max(MAX_FRACTIONAL_LABELS, num_rows / 2):
        raise TaskError(
            f"{where} holds {len(words):,} different labels in {num_rows:,} rows, too many "
            "to learn; choose another column"
        )


def _sorted(words: set[str]) -> tuple[str, ...]:
    """Return labels in ascending order: numeric if all are numbers, else alphabetical."""
    numbers = {word: _number(word) for word in words}
    if None in numbers.values():
        return tuple(sorted(words))
    return tuple(sorted(words, key=lambda word: (numbers[word], word)))


def _number(word: str) -> float | None:
    try:
        number = float(word)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _examples(
    task: Task, rows: Iterable[FileRow], file: Path, *, is_labelled: bool = True
) -> list[Example]:
    examples = [
        example_of(task, row, file, number=number, is_labelled=is_labelled)
        for number, row in enumerate(rows)
    ]
    if not examples:
        raise TaskError(f"{file} holds no rows; give a file with examples")
    return examples
