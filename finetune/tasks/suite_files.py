"""Read a task of a suite from its original files, one folder per task and SPLIT.tsv in it."""

from pathlib import Path

from finetune.tasks.examples import examples_of
from finetune.tasks.hub import read_hub
from finetune.tasks.suite import Suite
from finetune.tasks.tables import named_rows, tab_separated
from finetune.tasks.task import Example, Task, TaskData, TaskError, plain
from pretrain.config.errors import ConfigError

HUB = "hub"  # in place of a folder


def read_task(suite: Suite, task: Task, place: str) -> TaskData:
    """Read a task of a suite.

    Args:
        suite: that the task belongs to.
        task: to be read.
        place: the folder that holds one for each task, or "hub" for the Hugging Face Hub.

    Raises:
        ConfigError: there is no such folder.
        TaskError: the task or a file is missing, a file has not the expected format, or the Hub
            cannot be reached.
    """
    if place == HUB:
        return read_hub(suite, task)
    folder = _folder_of(suite, task, Path(place))
    notes: list[str] = []
    files = {split: folder / f"{split}.tsv" for split in ("train", *task.development)}
    missing = [file.name for file in files.values() if not file.is_file()]
    if missing:
        present = sorted(file.name for file in folder.glob("*")) or ["nothing"]
        raise TaskError(
            f"{folder}: {' and '.join(missing)} missing; the folder holds {', '.join(present)}; "
            f"download it with the rest of {suite.name}, or give other files as a task of your own"
        )
    labelled = {
        split: _read(task, file, is_labelled=True, notes=notes) for split, file in files.items()
    }
    train = labelled.pop("train")
    test = {}
    for split in task.test:
        for name in task.test_files.get(split, (f"{split}.tsv",)):
            if split not in test and (folder / name).is_file():
                test[split] = _read(task, folder / name, is_labelled=False, notes=notes)
    return TaskData(task, train, labelled, test, tuple(notes))


def _folder_of(suite: Suite, task: Task, place: Path) -> Path:
    try:
        found = {plain(folder.name): folder for folder in sorted(place.iterdir())}
    except OSError as error:
        raise ConfigError(
            f"{suite.name}'s folder {str(place)!r} cannot be read: {error.strerror}; "
            f"give the one that holds {task.name}/, or hub"
        ) from None
    if plain(task.name) not in found:
        known = [name for name in suite.tasks if plain(name) in found]
        raise TaskError(
            f"{place} has no folder {task.name}; of {suite.name} it holds "
            f"{', '.join(known) or 'nothing'}; add it, or leave the task out"
        )
    return found[plain(task.name)]


def _read(task: Task, file: Path, *, is_labelled: bool, notes: list[str]) -> list[Example]:
    broken: list[TaskError] = []
    rows = named_rows(
        file,
        tab_separated(file),
        (*task.texts, task.label) if is_labelled else task.texts,
        header=task.headless_columns if is_labelled else (),
        broken=broken if task.skips_broken_rows and is_labelled else None,
    )
    examples = examples_of(task, rows, file, is_labelled=is_labelled)
    if len(broken) > len(examples):
        raise broken[0]
    if broken:
        notes.append(f"{file}: {len(broken):,} broken rows left out; the first: {broken[0]}")
    if unlabelled := len(rows) - len(examples):
        notes.append(f"{file}: {unlabelled:,} rows with label {task.unlabelled!r} left out")
    if not examples:
        raise TaskError(f"{file} holds no examples; download the file again")
    return examples
