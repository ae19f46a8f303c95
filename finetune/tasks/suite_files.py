"""Read a task of a suite from its original files, one folder per task and SPLIT.tsv in it."""

from pathlib import Path

from data_prep.files.errors import raise_it
from finetune.tasks.examples import example_of
from finetune.tasks.hub import read_hub
from finetune.tasks.suite import Suite
from finetune.tasks.tables import named_rows, tab_separated, text_of
from finetune.tasks.task import Example, Task, TaskData, TaskError, plain
from pretrain.config.errors import ConfigError

HUB = "hub"  # in place of a folder


def read_task(suite: Suite, task: Task, place: str) -> TaskData:
    """Read a task of a suite.

    Args:
        suite: that the task belongs to.
        task: to be read.
        place: the folder of the original files, or "hub" for the Hugging Face Hub.

    Raises:
        ConfigError: there is no such folder.
        TaskError: files are missing or damaged, or the Hub cannot be reached.
    """
    return read_hub(suite, task) if place == HUB else read_files(suite, task, Path(place))


def read_files(suite: Suite, task: Task, place: Path) -> TaskData:
    """Read one task from a folder that holds a folder for each task of the suite.

    Raises:
        ConfigError: there is no such folder.
        TaskError: the task or a file is missing, or a file does not have the expected format.
    """
    folder = _folder_of(suite, task, place)
    notes: list[str] = []
    files = {split: folder / f"{split}.tsv" for split in ("train", *task.development)}
    for optional in task.development[1:]:
        if not files[optional].exists():
            notes.append(
                f"{files.pop(optional)} is missing: {task.name} is scored on "
                f"{task.development[0]} alone"
            )
    _refuse_missing(suite, task, folder, list(files.values()))
    labelled = {
        split: _read(task, file, is_labelled=True, notes=notes) for split, file in files.items()
    }
    train = labelled.pop("train")
    test = {
        split: _read(task, file, is_labelled=False, notes=notes)
        for split, file in _test_files(task, folder).items()
    }
    return TaskData(task, train, labelled, test, tuple(notes))


def folders_of_tasks(suite: Suite, place: Path) -> dict[str, Path]:
    """Return the folder of each task that exists, in the order of the suite.

    Raises:
        ConfigError: the place is not a folder that can be read.
    """
    try:
        found = {plain(folder.name): folder for folder in sorted(place.iterdir())}
    except OSError as error:
        first_two = ", ".join(f"{name}/" for name in list(suite.tasks)[:2])
        raise ConfigError(
            f"{suite.name}'s folder {str(place)!r} cannot be read: {error.strerror}; "
            f"give the one that holds {first_two}, ..., or hub"
        ) from None
    return {name: found[plain(name)] for name in suite.tasks if plain(name) in found}


def _folder_of(suite: Suite, task: Task, place: Path) -> Path:
    folders = folders_of_tasks(suite, place)
    if task.name in folders:
        return folders[task.name]
    if plain(place.resolve().name) == plain(task.name):
        raise ConfigError(
            f"{str(place)!r} is the folder of one task; give the one above it: {place.parent}"
        )
    expected = ", ".join(f"{task.name}/{split}.tsv" for split in ("train", *task.development))
    raise TaskError(
        f"{place} has no folder {task.name}; of {suite.name} it holds "
        f"{', '.join(folders) or 'nothing'}; put {expected} there, or leave the task out"
    )


def _refuse_missing(suite: Suite, task: Task, folder: Path, files: list[Path]) -> None:
    missing = [file.name for file in files if not file.is_file()]
    if not missing:
        return
    present = sorted(file.name for file in folder.glob("*")) or ["nothing"]
    fix = f"download it with the rest of {suite.name}, or give other files as a task of your own"
    if task.made_from and any(name.startswith(task.made_from[0]) for name in present):
        fix = task.made_from[1]
    raise TaskError(
        f"{folder}: {' and '.join(missing)} missing; {task.name} needs "
        f"{' and '.join(file.name for file in files)}, the folder holds {', '.join(present)}; {fix}"
    )


def _test_files(task: Task, folder: Path) -> dict[str, Path]:
    places = {split: task.test_files.get(split, (f"{split}.tsv",)) for split in task.test}
    found = {
        split: next((folder / name for name in names if (folder / name).is_file()), None)
        for split, names in places.items()
    }
    return {split: file for split, file in found.items() if file is not None}


def _read(task: Task, file: Path, *, is_labelled: bool, notes: list[str]) -> list[Example]:
    broken: list[TaskError] = []
    rows = named_rows(
        file,
        tab_separated(text_of(file)),
        (*task.texts, task.label) if is_labelled else task.texts,
        header=task.headless_columns if is_labelled else (),
        refuse=broken.append if task.skips_broken_rows and is_labelled else raise_it,
    )
    examples, num_unlabelled = [], 0
    for number, row in enumerate(rows):
        if is_labelled and task.unlabelled and row.values[task.label] == task.unlabelled:
            num_unlabelled += 1
            continue
        examples.append(example_of(task, row, file, number=number, is_labelled=is_labelled))
    if len(broken) > len(examples):
        raise broken[0]
    if broken:
        notes.append(f"{file}: {len(broken):,} broken rows left out; the first: {broken[0]}")
    if num_unlabelled:
        notes.append(f"{file}: {num_unlabelled:,} rows with label {task.unlabelled!r} left out")
    if not examples:
        raise TaskError(f"{file} holds no examples; download the file again")
    return examples
