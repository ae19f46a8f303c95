"""List the tasks of all suites, or with --glue FOLDER those of GLUE and their examples.

tupelo finetune tasks --glue glue_data/
"""

import argparse

from finetune.tasks.catalog import SUITES
from finetune.tasks.suite import Suite
from finetune.tasks.suite_files import read_task
from finetune.tasks.task import Task, TaskError
from pretrain.reports.table import Table
from pretrain.reports.terminal import terminal_width

TEXT = ("predicts", "metrics", "examples")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tupelo finetune tasks`."""
    for option, suite in SUITES.items():
        parser.add_argument(
            f"--{option}",
            metavar="PLACE",
            help=f"folder with {suite.name}'s original files, or hub: count examples",
        )


def main(arguments: argparse.Namespace) -> None:
    """Print one row for each task, and below the table the problems of its files."""
    given = {option: vars(arguments)[option] for option in SUITES if vars(arguments)[option]}
    rows, remarks = [], []
    for option in given or SUITES:
        for task in SUITES[option].tasks.values():
            predicts = ", ".join(task.labels) or "a number"
            row = {"task": task.name, "predicts": predicts, "metrics": ", ".join(task.metrics)}
            if given:
                row["examples"], lines = _sizes(SUITES[option], task, given[option])
                remarks += [f"{task.name}: {line}" for line in lines]
            rows.append(row)
    print(Table("Tasks", rows, text=TEXT).as_text(terminal_width()))
    for line in remarks:
        print(f"note: {line}")


def _sizes(suite: Suite, task: Task, place: str) -> tuple[str, list[str]]:
    try:
        data = read_task(suite, task, place)
    except TaskError as error:
        return "-", [str(error)]
    splits = {"train": data.train, **data.development, **data.test}
    counts = (f"{split} {len(examples):,}" for split, examples in splits.items())
    return ", ".join(counts), list(data.notes)
