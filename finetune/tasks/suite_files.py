"""Read a task of a suite from its original files, or with `datasets` from the Hugging Face Hub."""

from pathlib import Path

from data_prep.files.hub import connect_to_hub, reason_of
from data_prep.files.quoting import one_spelling
from finetune.tasks.examples import examples_of
from finetune.tasks.suite import Suite
from finetune.tasks.tables import named_rows, tab_separated
from finetune.tasks.task import Example, Task, TaskData, TaskError
from pretrain.config.errors import ConfigError


def read_task(suite: Suite, task: Task, place: str) -> TaskData:
    """Read a task of a suite.

    `place` is the folder that holds one for each task, or "hub" for the Hugging Face Hub.

    Raises:
        ConfigError: there is no such folder.
        TaskError: the task or a file is missing, a file has not the expected format, or the Hub
            cannot be reached.
    """
    if place == "hub":
        return read_hub(suite, task)
    try:
        found = {one_spelling(folder.name): folder for folder in sorted(Path(place).iterdir())}
    except OSError as error:
        raise ConfigError(
            f"{suite.name}'s folder {place!r} cannot be read: {error.strerror}; give the one that "
            f"holds {task.name}/, or hub"
        ) from None
    if one_spelling(task.name) not in found:
        raise TaskError(f"{place} has no folder {task.name}; add it, or leave the task out")
    folder = found[one_spelling(task.name)]
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
    test = {
        split: _read(task, file, is_labelled=False, notes=notes)
        for split in task.test
        if (file := folder / f"{split}.tsv").is_file()
    }
    return TaskData(task, train, labelled, test, tuple(notes))


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


def read_hub(suite: Suite, task: Task) -> TaskData:
    """Read one task of a suite, downloaded or from the cache.

    Raises:
        TaskError: the Hub cannot be reached or refuses, or a column or label is not the expected
            one.
    """
    if not suite.hub:
        raise TaskError(f"{suite.name} is not on the Hub; give the folder of its original files")
    where = f"{suite.hub}, {task.hub}"
    import datasets

    try:
        connect_to_hub()
        splits = datasets.load_dataset(suite.hub, task.hub)
    except Exception as error:  # the library passes on errors of many packages
        raise TaskError(
            f"{where}: cannot be read: {reason_of(error)}; try again, give the folder of the "
            "original files, or set HF_HUB_OFFLINE=1 if the data set is in the cache"
        ) from error

    def examples(split: str, *, is_labelled: bool = True) -> list[Example]:
        try:
            found = [
                Example(
                    tuple(row[text] for text in task.hub_texts or task.texts),
                    row["label"] if is_labelled else None,
                    str(row["idx"]),
                )
                for row in splits.get(split, ())
            ]
        except KeyError as error:
            raise TaskError(f"{where}: {split} has no column {error}") from None
        if not found:
            raise TaskError(f"{where}: no examples in {split!r}, it has {', '.join(splits)}")
        numbers = range(len(task.labels))
        if is_labelled and task.labels and not all(one.label in numbers for one in found):
            raise TaskError(f"{where}: {split} has labels other than 0 to {numbers[-1]}")
        return found

    development = {name: examples(name.replace("dev", "validation")) for name in task.development}
    test = {split: examples(split, is_labelled=False) for split in task.test}
    return TaskData(task, examples("train"), development, test)
