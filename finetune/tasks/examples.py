"""Turn rows of a file into examples: texts unchanged, labels into indices or numbers."""

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path

from data_prep.files.quoting import is_unicode, plain, quoted
from finetune.tasks.tables import FileRow
from finetune.tasks.task import Example, Task, TaskError
from pretrain.config.errors import nearest

MAX_NAMED_LABELS = 20  # in a message
SEPARATORS = re.compile("[,;|]")  # of several labels in one text
# As pandas writes lists of Python, and arrays of numpy: without commas.
LIST, ENTRY = re.compile(r"\[([^][]*)\]"), re.compile(r"""'[^']*'|"[^"]*"|[^\s,'"]+""")
# More different labels than a scale of grades has are classes only if they recur.
MAX_RARE_LABELS = 10


def examples_of(
    task: Task, rows: Sequence[FileRow], file: Path, *, is_labelled: bool = True
) -> list[Example]:
    """Return the examples in rows that have the columns of a task.

    Rows with the task's `unlabelled` are left out, but count in the numbers of those without an
    index column.

    Raises:
        TaskError: a text or label is missing, or the label is unknown or, in a regression, not a
            finite number.
    """
    return [
        _example(task, row, file, number=number, is_labelled=is_labelled)
        for number, row in enumerate(rows)
        if not (is_labelled and task.unlabelled and row.values[task.label] == task.unlabelled)
    ]


def _example(task: Task, row: FileRow, file: Path, *, number: int, is_labelled: bool) -> Example:
    texts = tuple(text_in(row, column, file) for column in task.texts)
    identity = str(number if task.identity is None else row.values.get(task.identity, number))
    if not is_labelled:
        return Example(texts, None, identity)
    found = []
    for word in label_words(row, task, file):
        where = f"label {quoted(word)} in column {task.label!r}"
        if task.kind == "regression":
            if (value := number_in(word)) is None:
                raise TaskError(
                    f"{file}, row {row.number}: {where} is not a finite number such as 2.5, "
                    "which a regression needs; fix or remove the row"
                )
            return Example(texts, value, identity)
        if word not in task.labels:
            known = [plain(label) for label in task.labels]
            raise TaskError(
                f"{file}, row {row.number}: unknown {where}{nearest(word, known, {})}; {task.name} "
                f"has {', '.join(known[:MAX_NAMED_LABELS])}; fix or remove the row"
            )
        found.append(task.labels.index(word))
    label = tuple(sorted({*found})) if task.kind == "multi-label" else found[0]
    return Example(texts, label, identity)


def text_in(row: FileRow, column: str, file: Path) -> str:
    """Return the text in a column.

    Raises:
        TaskError: it holds something else.
    """
    value = row.values[column]
    if not isinstance(value, str) or not is_unicode(value):
        raise _refusal(row, column, file, "text")
    return value


def label_words(row: FileRow, task: Task, file: Path) -> list[str]:
    """Return the label of a row as the file spells it; of a task with several, any number.

    Raises:
        TaskError: the row has none where it must have one.
    """
    value = row.values[task.label]
    if (several := task.kind == "multi-label") and isinstance(value, str):
        entries = LIST.fullmatch(value)
        value = ENTRY.findall(entries[1]) if entries else SEPARATORS.split(value)
        value = [each.strip("'\"") for each in value] if entries else value
    values = value if several and isinstance(value, list) else [value]
    values = [each.strip() if isinstance(each, str) else each for each in values]
    values = [each for each in values if each != "" or not several]
    words = []
    for one in values:
        if isinstance(one, bool | int | float) and one == one:  # NaN is what is missing
            one = json.dumps(one)
        if not isinstance(one, str) or not one or not is_unicode(one):
            raise _refusal(row, task.label, file, "label")
        words.append(one)
    return words


def _refusal(row: FileRow, column: str, file: Path, what: str) -> TaskError:
    found = plain(json.dumps(row.values[column], default=repr))
    return TaskError(
        f"{file}, row {row.number}: column {column!r} holds no {what} but {found}; fix or remove "
        "the row, or name another column"
    )


def number_in(word: str) -> float | None:
    """Return the finite number that a word is; None: it is none, nor is 1_2, which Python reads."""
    try:
        number = math.nan if "_" in word else float(word)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def labels_of(words: Sequence[str], where: str) -> tuple[str, ...]:
    """Return the classes in ascending order: numeric if all are numbers, else alphabetical.

    Raises:
        TaskError: they are measured values or texts rather than classes.
    """
    found = sorted(set(words))
    numbers = {word: number_in(word) for word in found}
    values = [number for number in numbers.values() if number is not None]
    are_measured = len(values) == len(found) and not all(map(float.is_integer, values))
    if len(found) > max(MAX_RARE_LABELS, 0 if are_measured else len(words) / 2):
        raise TaskError(
            f"{where} holds {len(found):,} different labels in {len(words):,} rows, too many "
            "classes to learn; predict numbers with --regression, or choose another column"
        )
    if None in numbers.values():
        return tuple(found)
    return tuple(sorted(found, key=lambda word: (numbers[word], word)))
