"""Read GLUE from the original files: one folder a task, SPLIT.tsv each."""

from collections.abc import Iterator
from pathlib import Path

from finetune.tasks.examples import example_of
from finetune.tasks.glue import GLUE, Example, Task, TaskData, TaskError, plain
from finetune.tasks.hub import read_hub
from finetune.tasks.tables import Row, named_rows, raise_it, tab_separated
from pretrain.config.errors import ConfigError

# Where the examples of GLUE's diagnosis of MNLI models are found; the first is in MNLI's folder.
DIAGNOSIS = ("diagnostic.tsv", "../diagnostic/diagnostic.tsv", "../AX/AX.tsv", "../AX.tsv")
NO_CONSENSUS = "-"  # gold label of a pair that the annotators of MNLI did not agree on


def read_files(task: Task, place: Path) -> TaskData:
    """Read one task out of a folder that holds a folder for each.

    Raises:
        ConfigError: there is no such folder.
        TaskError: the task or a file is missing, or a file is not what GLUE's is.
    """
    folder = _folder_of(task, place)
    notes: list[str] = []
    files = {split: folder / f"{split}.tsv" for split in ("train", *task.development)}
    for optional in task.development[1:]:
        if not files[optional].exists():
            notes.append(
                f"{files.pop(optional)} is missing: {task.name} is scored on "
                f"{task.development[0]} alone"
            )
    _refuse_missing(task, folder, list(files.values()))
    labelled = {
        split: _read(task, file, is_labelled=True, notes=notes) for split, file in files.items()
    }
    train = labelled.pop("train")
    test = {
        split: _read(task, file, is_labelled=False, notes=notes)
        for split, file in _test_files(task, folder).items()
    }
    return TaskData(task, train, labelled, test, tuple(notes))


def folders_of_tasks(place: Path) -> dict[str, Path]:
    """Return the folder of each task of GLUE that there is, in GLUE's order.

    Raises:
        ConfigError: the place is no folder that can be read.
    """
    try:
        found = {plain(folder.name): folder for folder in sorted(place.iterdir())}
    except OSError as error:
        raise ConfigError(
            f"GLUE's folder {str(place)!r} cannot be read: {error.strerror}; "
            "give the one that holds CoLA/, SST-2/, ..., or hub"
        ) from None
    return {name: found[plain(name)] for name in GLUE if plain(name) in found}


def _folder_of(task: Task, place: Path) -> Path:
    folders = folders_of_tasks(place)
    if task.name in folders:
        return folders[task.name]
    if plain(place.resolve().name) == plain(task.name):
        raise ConfigError(
            f"{str(place)!r} is the folder of one task; give the one above it: {place.parent}"
        )
    expected = ", ".join(f"{task.name}/{split}.tsv" for split in ("train", *task.development))
    raise TaskError(
        f"{place} has no folder {task.name}; of GLUE it holds {', '.join(folders) or 'nothing'}; "
        f"put {expected} there, or leave the task out"
    )


def _refuse_missing(task: Task, folder: Path, files: list[Path]) -> None:
    missing = [file.name for file in files if not file.is_file()]
    if not missing:
        return
    there = sorted(file.name for file in folder.glob("*")) or ["nothing"]
    fix = "get it where the rest of GLUE is, or give other files as a task of your own"
    if any(name.startswith("msr_paraphrase") for name in there):
        fix = (
            "make it of Microsoft's msr_paraphrase_train.txt, whose rows GLUE's dev_ids.tsv "
            "divides: the identities in it are the development set"
        )
    raise TaskError(
        f"{folder}: {' and '.join(missing)} missing; {task.name} needs "
        f"{' and '.join(file.name for file in files)}, the folder holds {', '.join(there)}; {fix}"
    )


def _test_files(task: Task, folder: Path) -> dict[str, Path]:
    places = {split: DIAGNOSIS if split == "test_ax" else (f"{split}.tsv",) for split in task.test}
    found = {
        split: next((folder / name for name in names if (folder / name).is_file()), None)
        for split, names in places.items()
    }
    return {split: file for split, file in found.items() if file is not None}


def _read(task: Task, file: Path, *, is_labelled: bool, notes: list[str]) -> list[Example]:
    broken: list[TaskError] = []
    refuse = broken.append if task.skips_broken_rows and is_labelled else raise_it
    columns = (*task.texts, task.label) if is_labelled else task.texts
    rows: Iterator[Row] = named_rows(
        file,
        tab_separated(file),
        columns,
        header=task.headless_columns if is_labelled else (),
        refuse=refuse,
    )
    examples, disputed = [], 0
    for number, row in enumerate(rows):
        if is_labelled and row.values[task.label] == NO_CONSENSUS:
            disputed += 1
            continue
        examples.append(example_of(task, row, file, number=number, is_labelled=is_labelled))
    if len(broken) > len(examples):
        raise broken[0]
    if broken:
        notes.append(f"{file}: {len(broken):,} broken rows left out; the first: {broken[0]}")
    if disputed:
        notes.append(f"{file}: {disputed:,} rows whose label is {NO_CONSENSUS!r} left out")
    if not examples:
        raise TaskError(f"{file} holds no examples; get the file again")
    return examples


HUB = "hub"


def read_glue(task: Task, place: str) -> TaskData:
    """Read a task of GLUE.

    Args:
        task: one of `tasks.GLUE`.
        place: the folder of the original files, or "hub" for the Hugging Face Hub.

    Raises:
        ConfigError: there is no such folder.
        TaskError: files are missing or damaged, or the Hub cannot be reached.
    """
    return read_hub(task) if place == HUB else read_files(task, Path(place))
