"""Write predictions of test sets as GLUE's server wants them: eleven TSV files in one zip.

https://gluebenchmark.com/submit: a header `index<TAB>prediction`, a row for each example, in the
order of their index, labels as words.
"""

import math
import zipfile
from collections.abc import Sequence
from pathlib import Path

from data_prep.files.atomic import partial_name, replace, save_text
from finetune.tasks.glue import GLUE, Example, Task, TaskError

HIGHEST_SCORE = 5  # of STS-B; the lowest is 0
FIRST_DAY = (1980, 1, 1, 0, 0, 0)  # of the zip format: equal files make equal archives
FILES_OF_MNLI = {
    "test_matched": "MNLI-m.tsv",
    "test_mismatched": "MNLI-mm.tsv",
    "test_ax": "AX.tsv",
}


def submission_file(task: Task, split: str) -> str:
    """Return how GLUE's server calls the file of a test split."""
    return FILES_OF_MNLI[split] if task.name == "MNLI" else f"{task.name}.tsv"


def submission_files() -> list[str]:
    """Return all files that GLUE's server wants."""
    return [submission_file(task, split) for task in GLUE.values() for split in task.test]


def missing_files(folder: Path) -> list[str]:
    """Return the files that a submission still lacks; the server takes none without them."""
    return [name for name in submission_files() if not (folder / name).is_file()]


def write_predictions(
    task: Task,
    split: str,
    predictions: Sequence[int | float],
    examples: Sequence[Example],
    folder: Path,
) -> Path:
    """Write the file of one test split and return it.

    Args:
        task: one of GLUE's.
        split: one of its test splits.
        predictions: an index into the task's labels for each example, or a value.
        examples: whose identity is GLUE's index.
        folder: is made where it does not exist.

    Raises:
        TaskError: an index is not a number, or is there twice.
        ValueError: there are more predictions than examples or less, or one is not finite.
    """
    rows = sorted(
        (_index_of(example, task, split), _word_of(task, prediction))
        for example, prediction in zip(examples, predictions, strict=True)
    )
    if len({index for index, _ in rows}) < len(rows):
        raise TaskError(f"{task.name} {split}: two examples have the same index; fix the file")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / submission_file(task, split)
    lines = ["index\tprediction", *(f"{index}\t{word}" for index, word in rows)]
    save_text(file, "\n".join(lines) + "\n")
    return file


def zip_submission(folder: Path, archive: Path) -> list[str]:
    """Pack the files of a submission that are there, and return the names of those missing."""
    partial = partial_name(archive)
    with zipfile.ZipFile(partial, "w") as packed:
        for name in submission_files():
            if (folder / name).is_file():
                entry = zipfile.ZipInfo(name, FIRST_DAY)
                entry.compress_type = zipfile.ZIP_DEFLATED
                packed.writestr(entry, (folder / name).read_bytes())
    replace(partial, archive)
    return missing_files(folder)


def _index_of(example: Example, task: Task, split: str) -> int:
    if not example.identity.isdecimal():
        raise TaskError(
            f"{task.name} {split}: index {example.identity!r} is no whole number, which GLUE's "
            "server wants; fix the file"
        )
    return int(example.identity)


def _word_of(task: Task, prediction: int | float) -> str:
    if task.kind == "classification":
        return task.labels[int(prediction)]
    if not math.isfinite(prediction):
        raise ValueError(f"{task.name}: the prediction {prediction} is not finite")
    return f"{min(max(0.0, prediction), HIGHEST_SCORE):.3f}"
