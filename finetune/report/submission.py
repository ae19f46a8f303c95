"""Write predictions of test sets as a suite's server accepts them: one file each, in one zip."""

import zipfile
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, FiniteFloat

from data_prep.files.atomic import partial_name, replace, save_text
from finetune.tasks.suite import SubmissionFormat, Suite
from finetune.tasks.task import Task, TaskError

FIRST_DAY = (1980, 1, 1, 0, 0, 0)  # of the zip format: equal files make equal archives


class Prediction(BaseModel):
    """The prediction of a trial for one example of a test set."""

    identity: str
    prediction: int | FiniteFloat  # index of a label, or a value


def submission_format(suite: Suite) -> SubmissionFormat:
    """Return the format of a suite that has a server."""
    assert suite.submission is not None
    return suite.submission


def submission_files(suite: Suite) -> list[str]:
    """Return the names of all files that the suite's server needs."""
    name = submission_format(suite).file_name
    return [name(task, split) for task in suite.tasks.values() for split in task.test]


def write_predictions(
    suite: Suite, task: Task, split: str, predictions: Sequence[Prediction], folder: Path
) -> Path:
    """Write the file of one test split, in the order of the examples' indices, and return it.

    Raises:
        TaskError: the identity of an example is not an index, or occurs twice.
        ValueError: a prediction is not finite.
    """
    rows = sorted((_index(found, task, split), found.prediction) for found in predictions)
    if len({index for index, _ in rows}) < len(rows):
        raise TaskError(f"{task.name} {split}: two examples have the same index; fix the file")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / submission_format(suite).file_name(task, split)
    save_text(file, submission_format(suite).content(task, rows))
    return file


def zip_submission(suite: Suite, folder: Path, archive: Path) -> list[str]:
    """Pack the existing files of a submission, and return the names of the missing ones.

    The server rejects an incomplete submission.
    """
    partial, missing = partial_name(archive), []
    with zipfile.ZipFile(partial, "w") as packed:
        for name in submission_files(suite):
            if not (folder / name).is_file():
                missing.append(name)
                continue
            entry = zipfile.ZipInfo(name, FIRST_DAY)
            entry.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(entry, (folder / name).read_bytes())
    replace(partial, archive)
    return missing


def _index(prediction: Prediction, task: Task, split: str) -> int:
    if not prediction.identity.isdecimal():
        raise TaskError(
            f"{task.name} {split}: index {prediction.identity!r} is not a whole number, as a "
            "submission needs; fix the file"
        )
    return int(prediction.identity)
