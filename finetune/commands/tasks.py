"""List the tasks of all suites, or with --glue FOLDER those of GLUE and their examples.

tupelo finetune tasks --glue glue_data/
"""

import argparse

from tabulate import tabulate

from finetune.tasks.catalog import SUITES
from finetune.tasks.suite import Suite
from finetune.tasks.suite_files import read_task
from finetune.tasks.task import Task, TaskError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tupelo finetune tasks`."""
    for option, suite in SUITES.items():
        parser.add_argument(
            f"--{option}",
            metavar="PLACE",
            help=f"folder of {suite.name}'s original files, or hub: count examples",
        )


def main(arguments: argparse.Namespace) -> None:
    """Print one row for each task, and below the table the problems of its files."""
    places = {option: vars(arguments)[option] for option in SUITES}
    given = {option: place for option, place in places.items() if place is not None}
    table, remarks = [], []
    for option, place in (given or places).items():
        for task in SUITES[option].tasks.values():
            last, lines = (_files(task), []) if not given else _sizes(SUITES[option], task, place)
            predicts = ", ".join(task.labels) or "a number"
            table.append((task.name, predicts, ", ".join(task.metrics), last))
            remarks += lines
    header = ("task", "predicts", "metrics", "examples" if given else "files")
    print(tabulate(table, header, disable_numparse=True))
    for line in remarks:
        print(f"* {line}")


def _files(task: Task) -> str:
    usual = ((f"{split}.tsv",) for split in ("train", *task.development))
    test = (task.test_files.get(split, (f"{split}.tsv",)) for split in task.test)
    return ", ".join(names[0] for names in (*usual, *test))


def _sizes(suite: Suite, task: Task, place: str) -> tuple[str, list[str]]:
    try:
        data = read_task(suite, task, place)
    except TaskError as error:
        return "-", [f"{task.name}: {error}"]
    splits = {"train": data.train, **data.development, **data.test}
    counts = (f"{split} {len(examples):,}" for split, examples in splits.items())
    return ", ".join(counts), [f"{task.name}: {note}" for note in data.notes]
