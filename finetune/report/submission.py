"""Write predictions of test sets as a suite's server accepts them: one file each, in one zip."""

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, FiniteFloat

from data_prep.files.atomic import save_text
from finetune.tasks.suite import Suite
from finetune.tasks.task import Task, TaskError

FIRST_DAY = (1980, 1, 1, 0, 0, 0)  # of the zip format: equal files make equal archives


class Prediction(BaseModel):
    """The prediction of a trial for one example of a test set."""

    identity: str
    prediction: int | FiniteFloat  # index of a label, or a value


def write_submission(
    suite: Suite, predictions: Mapping[tuple[str, str], Sequence[Prediction]], folder: Path
) -> list[str]:
    """Write the file of each test split, and submission.zip of them.

    Args:
        suite: that has a server.
        predictions: by task and split.
        folder: that exists.

    Returns:
        The names of the missing files; the server rejects an incomplete submission.

    Raises:
        TaskError: the identity of an example is not an index, or occurs twice.
        ValueError: a prediction is not finite.
    """
    form, missing = suite.submission, []
    assert form is not None
    with zipfile.ZipFile(folder / "submission.zip", "w") as archive:
        splits = [(task, split) for task in suite.tasks.values() for split in task.test]
        for task, split in splits:
            name = form.file_name(task, split)
            if (task.name, split) not in predictions:
                missing.append(name)
                continue
            content = form.content(task, _in_order(predictions[task.name, split], task, split))
            save_text(folder / name, content)
            entry = zipfile.ZipInfo(name, FIRST_DAY)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return missing


def _in_order(
    predictions: Sequence[Prediction], task: Task, split: str
) -> list[tuple[int, int | float]]:
    """Return pairs of index and prediction, in the order of the indices."""
    for found in predictions:
        if not found.identity.isdecimal():
            raise TaskError(
                f"{task.name} {split}: index {found.identity!r} is not a whole number, as a "
                "submission needs; fix the file"
            )
    rows = sorted((int(found.identity), found.prediction) for found in predictions)
    if len({index for index, _ in rows}) < len(rows):
        raise TaskError(f"{task.name} {split}: two examples have the same index; fix the file")
    return rows
