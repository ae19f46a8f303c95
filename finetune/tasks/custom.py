"""A task of the user's own: classification or regression of one text or a pair, from three files.

The labels are those of the training file. Without a development file a tenth of the training rows
is held out.
"""

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field, field_validator, model_validator

from finetune.tasks.catalog import SUITES
from finetune.tasks.examples import example_of, label_word
from finetune.tasks.held_out import hold_out, recurring_notes
from finetune.tasks.labels import labels_of
from finetune.tasks.metric_names import (
    fitting_metrics,
    main_first,
    metric_named,
    usual_metric,
)
from finetune.tasks.tables import FORMATS, FileRow, read_rows, shortened
from finetune.tasks.task import Example, Task, TaskData, TaskError, plain
from pretrain.config.settings import Section


class OwnTask(Section):
    """The files of a task of the user's own, and which columns predict which."""

    name: str = Field(
        "own", pattern=r"^\w[\w.-]*$", description="name of the task in tables and folders"
    )
    train: Path = Field(description=f"examples to learn from; {FORMATS}")
    dev: Path | None = Field(
        None, description="examples to score on; none: a tenth of the training file"
    )
    test: Path | None = Field(None, description="examples to predict, without labels")
    texts: tuple[str, ...] = Field(
        ("text",), min_length=1, max_length=2, description="columns of the text or of the pair"
    )
    label: str = Field("label", description="column that is predicted")
    regression: bool = Field(False, description="labels are numbers, and predicted as such")
    metric: str | None = Field(
        None,
        description="counts in the table and chooses the learning rate; default: accuracy, of "
        "imbalanced classes macro_f1, of numbers pearson",
    )

    @field_validator("name")
    @classmethod
    def _is_not_in_a_suite(cls, name: str) -> str:
        for suite in SUITES.values():
            if plain(name) in map(plain, suite.tasks):
                raise ValueError(f"name={name!r} is a task of {suite.name}; choose another name")
        return name

    @field_validator("metric")
    @classmethod
    def _find_metric(cls, metric: str | None) -> str | None:
        return None if metric is None else metric_named(metric)

    @model_validator(mode="after")
    def _check_columns(self) -> "OwnTask":
        columns = (*self.texts, self.label)
        if len(set(columns)) < len(columns):
            raise ValueError(f"texts and label name a column twice: {', '.join(columns)}")
        return self


def read_own(own: OwnTask) -> TaskData:
    """Read a task of the user's own.

    Raises:
        TaskError: a file cannot be read, lacks a column or rows, its labels are unsuitable, or the
            metric does not fit them.
    """
    columns = (*own.texts, own.label)
    rows = _rows_of(own.train, columns)
    task, notes = _task_of(own, rows)
    train = _examples(task, rows, own.train)
    test = {}
    if own.test is not None:
        test["test"] = _examples(task, _rows_of(own.test, own.texts), own.test, is_labelled=False)
    if own.dev is None:
        train, development, remarks = hold_out(train, own.train)
    else:
        development = _examples(task, _rows_of(own.dev, columns), own.dev)
        remarks = recurring_notes(train, development, own.dev)
    return TaskData(task, train, {"dev": development}, test, (*notes, *remarks))


def _rows_of(file: Path, columns: Sequence[str]) -> list[FileRow]:
    rows = list(read_rows(file, columns))
    if not rows:
        raise TaskError(f"{file} holds no rows; give a file with examples")
    return rows


def _task_of(own: OwnTask, rows: list[FileRow]) -> tuple[Task, list[str]]:
    """Return the task, and remarks for the user."""
    words = [label_word(row, own.label, own.train) for row in rows]
    where = f"{own.train}: column {own.label!r}"
    if len(set(words)) == 1:
        raise TaskError(
            f"{where} holds {shortened(words[0])!r} in every row: "
            "there is nothing to learn; choose another column"
        )
    labels = () if own.regression else labels_of(words, where)
    if own.metric is None:
        main, note = usual_metric(words) if labels else ("pearson", "")
    else:
        main = own.metric
        note = f"F1 is that of label {shortened(labels[-1])!r}" if main == "f1" and labels else ""
    metrics = main_first(fitting_metrics(labels), main)
    task = Task(
        own.name,
        labels,
        metrics,
        texts=own.texts,
        label=own.label,
        identity=None,
        file=own.train.name,
    )
    return task, [note] if note else []


def _examples(
    task: Task, rows: Sequence[FileRow], file: Path, *, is_labelled: bool = True
) -> list[Example]:
    return [
        example_of(task, row, file, number=number, is_labelled=is_labelled)
        for number, row in enumerate(rows)
    ]
