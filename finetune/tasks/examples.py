"""Turn rows of a file into examples: texts unchanged, labels into indices or numbers."""

import json
import math
from pathlib import Path

from data_prep.files.quoting import is_unicode
from finetune.tasks.labels import number_in
from finetune.tasks.tables import FileRow, shortened
from finetune.tasks.task import Example, Task, TaskError
from pretrain.config.errors import nearest

MAX_NAMED_LABELS = 20  # in a message


def example_of(task: Task, row: FileRow, file: Path, *, number: int, is_labelled: bool) -> Example:
    """Return the example in a row.

    Args:
        task: names the columns and the labels.
        row: has these columns.
        file: for messages.
        number: of the row among those of the file, from 0.
        is_labelled: whether the label is read.

    Raises:
        TaskError: a text or label is missing, or the label is unknown or, in a regression, not a
            finite number.
    """
    texts = tuple(_text_of(row, column, file) for column in task.texts)
    identity = str(number if task.identity is None else row.values.get(task.identity, number))
    if not is_labelled:
        return Example(texts, None, identity)
    word = label_word(row, task.label, file)
    if task.kind == "regression":
        return Example(texts, _number_of(word, row, task.label, file), identity)
    if word not in task.labels:
        known = [shortened(label) for label in task.labels]
        listed = ", ".join(known[:MAX_NAMED_LABELS])
        raise TaskError(
            f"{file}, row {row.line}: unknown label {shortened(word)!r} in column {task.label!r}"
            f"{nearest(word, known)}; {task.name} has {listed}; fix or remove the row"
        )
    return Example(texts, task.labels.index(word), identity)


def label_word(row: FileRow, column: str, file: Path) -> str:
    """Return a label as the file spells it.

    Raises:
        TaskError: the row has none.
    """
    value = row.values[column]
    if isinstance(value, bool | int | float) and not _is_nan(value):
        return json.dumps(value)
    if not isinstance(value, str) or not value or not is_unicode(value):
        raise TaskError(
            f"{file}, row {row.line}: column {column!r} holds no label but {_kind(value)}; "
            "fix or remove the row"
        )
    return value


def _number_of(word: str, row: FileRow, column: str, file: Path) -> float:
    found = number_in(word)
    number = math.nan if found is None else float(found)
    if not math.isfinite(number):  # a Decimal may be beyond the largest float
        raise TaskError(
            f"{file}, row {row.line}: label {shortened(word)!r} in column {column!r} is not a "
            "finite number, which a regression needs; fix or remove the row"
        )
    return number


def _text_of(row: FileRow, column: str, file: Path) -> str:
    text = row.values[column]
    if not isinstance(text, str):
        raise TaskError(
            f"{file}, row {row.line}: column {column!r} holds no text but {_kind(text)}; "
            "fix or remove the row, or name another column"
        )
    if not is_unicode(text):
        raise TaskError(
            f"{file}, row {row.line}: column {column!r} holds half of a surrogate pair; "
            "fix the \\u escapes"
        )
    return text


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if _is_nan(value):
        return "NaN"
    return type(value).__name__ if value != "" else "nothing"


def _is_nan(value: object) -> bool:
    """Return whether it is the number that programs write for a missing one."""
    return isinstance(value, float) and math.isnan(value)
