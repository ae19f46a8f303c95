"""Read GLUE from the Hugging Face Hub, through the package `datasets` (extra `hub`)."""

from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from data_prep.files.hub import connect_to_hub
from finetune.tasks.glue import Example, Task, TaskData, TaskError

DATASET = "nyu-mll/glue"
DIAGNOSIS = "ax"  # its configuration for MNLI's test_ax

Splits = Mapping[str, Iterable[Mapping[str, Any]]]


def load_from_hub(name: str) -> Splits:
    """Return a configuration of the data set, downloaded or from the cache.

    Raises:
        TaskError: the package is missing, or the Hub cannot be reached or refuses.
    """
    try:
        version("datasets")
    except PackageNotFoundError:
        raise _refused(name, "needs the package datasets: pip install datasets") from None
    import datasets

    try:
        connect_to_hub()
    except OSError as error:
        raise _refused(
            name,
            f"the Hugging Face Hub cannot be reached ({error}); give the folder of GLUE's original "
            "files instead, or set HF_HUB_OFFLINE=1 where it is in the cache",
        ) from None
    try:
        splits: Splits = datasets.load_dataset(DATASET, name)
    except Exception as error:  # anything that reading over a network can end in
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise _refused(name, f"cannot be read: {reason.rstrip('.')}; try again") from error
    return splits


def read_hub(task: Task, *, load: Callable[[str], Splits] = load_from_hub) -> TaskData:
    """Read one task of GLUE.

    Args:
        task: one of `tasks.GLUE`.
        load: gives a configuration of the data set.

    Raises:
        TaskError: it cannot be loaded, or a label is none of GLUE's.
    """
    splits = load(task.hub)
    development = {
        split: _examples(task, splits, split.replace("dev", "validation"))
        for split in task.development
    }
    test = {
        split: _examples(task, load(DIAGNOSIS), "test", is_labelled=False)
        if split == "test_ax"
        else _examples(task, splits, split, is_labelled=False)
        for split in task.test
    }
    return TaskData(task, _examples(task, splits, "train"), development, test)


def _examples(task: Task, splits: Splits, split: str, *, is_labelled: bool = True) -> list[Example]:
    if split not in splits:
        raise _refused(task.hub, f"no split {split!r}, it has {', '.join(splits)}")
    texts, examples = task.hub_texts or task.texts, []
    for row in splits[split]:
        missing = [column for column in (*texts, "idx", "label") if column not in row]
        if missing:
            raise _refused(
                task.hub, f"no column {missing[0]!r} in {split}, it has {', '.join(row)}"
            )
        label = _label_of(task, row) if is_labelled else None
        examples.append(Example(tuple(row[text] for text in texts), label, str(row["idx"])))
    if not examples:
        raise _refused(task.hub, f"no examples in {split}")
    return examples


def _label_of(task: Task, row: Mapping[str, Any]) -> int | float:
    label: int | float = row["label"]
    if task.kind == "classification" and label not in range(len(task.labels)):
        raise _refused(
            task.hub,
            f"label {label!r} at idx {row['idx']}, expected 0 to {len(task.labels) - 1}",
        )
    return label


def _refused(name: str, reason: str) -> TaskError:
    return TaskError(f"{DATASET}, {name}: {reason}")
