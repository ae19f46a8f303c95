"""Read a task of a suite from the Hugging Face Hub, with the package `datasets` (extra `hub`)."""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from data_prep.files.extras import require
from data_prep.files.hub import connect_to_hub
from finetune.tasks.suite import Suite
from finetune.tasks.task import Example, Task, TaskData, TaskError

Splits = Mapping[str, Iterable[Mapping[str, Any]]]


def load_from_hub(dataset: str, configuration: str) -> Splits:
    """Return a configuration of a data set, downloaded or from the cache.

    Raises:
        MissingPackage: `datasets` is not installed.
        TaskError: the Hub cannot be reached or refuses.
    """
    where = f"{dataset}, {configuration}"
    require("datasets", by=where)
    import datasets

    try:
        connect_to_hub()
    except OSError as error:
        raise TaskError(
            f"{where}: the Hugging Face Hub cannot be reached ({error}); give the folder of the "
            "original files instead, or set HF_HUB_OFFLINE=1 if the data set is in the cache"
        ) from None
    try:
        splits: Splits = datasets.load_dataset(dataset, configuration)
    except Exception as error:  # the library passes on errors of many packages
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise TaskError(f"{where}: cannot be read: {reason.rstrip('.')}; try again") from error
    return splits


def read_hub(
    suite: Suite, task: Task, *, load: Callable[[str, str], Splits] = load_from_hub
) -> TaskData:
    """Read one task of a suite.

    Args:
        suite: names the data set.
        task: names its configuration.
        load: returns a configuration of a data set.

    Raises:
        TaskError: it cannot be loaded, or a column or label is not the expected one. A test split
            of another configuration is left out, with a note.
    """
    if not suite.hub:
        raise TaskError(f"{suite.name} is not on the Hub; give the folder of its original files")
    load = functools.cache(load)

    texts = task.hub_texts or task.texts

    def examples(
        split: str, configuration: str = task.hub, *, is_labelled: bool = True
    ) -> list[Example]:
        where, splits = f"{suite.hub}, {configuration}", load(suite.hub, configuration)
        try:
            found = [
                Example(
                    tuple(row[text] for text in texts),
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

    development = {
        split: examples(split.replace("dev", "validation")) for split in task.development
    }
    test, notes = {}, []
    for split in task.test:
        other = task.hub_test.get(split)
        try:
            test[split] = examples("test" if other else split, other or task.hub, is_labelled=False)
        except TaskError as error:
            if other is None:
                raise
            notes.append(f"{task.title(split)} is not predicted: {error}")
    return TaskData(task, examples("train"), development, test, tuple(notes))
