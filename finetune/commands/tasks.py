"""List the tasks of GLUE, and with --glue FOLDER the number of examples that are there.

python -m finetune tasks --glue glue_data/
"""

import argparse

from tabulate import tabulate

from finetune.tasks.glue import GLUE, Task, TaskError
from finetune.tasks.glue_files import DIAGNOSIS, read_glue


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `python -m finetune tasks`."""
    parser.add_argument(
        "--glue", metavar="PLACE", help="folder of GLUE's original files, or hub: count examples"
    )


def main(arguments: argparse.Namespace) -> None:
    """Print one row for each task, and below the table what is wrong with files."""
    table, remarks = [], []
    for task in GLUE.values():
        last, lines = (_files(task), []) if arguments.glue is None else _sizes(task, arguments.glue)
        predicts = ", ".join(task.labels) or "a number"
        table.append((task.name, predicts, ", ".join(task.metrics), last))
        remarks += lines
    header = ("task", "predicts", "metrics", "files" if arguments.glue is None else "examples")
    print(tabulate(table, header, disable_numparse=True))
    for line in remarks:
        print(f"* {line}")


def _files(task: Task) -> str:
    files = ", ".join(f"{split}.tsv" for split in ("train", *task.development, *task.test))
    return files.replace("test_ax.tsv", DIAGNOSIS[0])


def _sizes(task: Task, place: str) -> tuple[str, list[str]]:
    try:
        data = read_glue(task, place)
    except TaskError as error:
        return "-", [f"{task.name}: {error}"]
    splits = {"train": data.train, **data.development, **data.test}
    counts = (f"{split} {len(examples):,}" for split, examples in splits.items())
    return ", ".join(counts), [f"{task.name}: {note}" for note in data.notes]
