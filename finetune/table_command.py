"""Make a table of fine-tuning results: one row per model, one column per task.

    python -m finetune table runs/NAME/bert_a runs/NAME/tupe_r --to runs/NAME/glue

Folders are pre-training runs that were fine-tuned, or folders of grids, several taken together.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from finetune.records import read_records
from finetune.score_table import score_table
from finetune.scores import Counting
from finetune.table_notes import notes
from finetune.table_page import write_table
from finetune.table_text import as_text, caption


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `python -m finetune table`."""
    parser.add_argument("folders", nargs="+", type=Path, help="runs or grids, with all below them")
    parser.add_argument("--to", type=Path, help="folder for the page, the pictures and the files")
    parser.add_argument(
        "--average",
        choices=get_args(Counting),
        default="glue",
        help="how scores are counted; glue: the mean of a task's metrics, MNLI once; tupe: the "
        "first metric, both sets of MNLI, without WNLI",
    )
    parser.add_argument(
        "--step",
        default="newest",
        help="of pre-training: newest (of each model), all, or a number; pictures show all",
    )


def main(arguments: argparse.Namespace) -> None:
    """Print the table, and write it where a folder is given."""
    print_table(arguments.folders, to=arguments.to, average=arguments.average, step=arguments.step)


def print_table(
    folders: Sequence[Path],
    *,
    to: Path | None = None,
    average: Counting = "glue",
    step: str = "newest",
) -> None:
    """Print the table of these folders and what to know of it; write it to the folder `to`.

    Raises:
        ConfigError: see `read_records`, `score_table` and `write_table`.
    """
    records = read_records(folders)
    table = score_table(records, average, step)
    remarks = notes(table, records)
    print(as_text(table))
    print(caption(table))
    for remark in remarks:
        print(f"note: {remark}")
    if to is not None:
        write_table(table, remarks, to)
        print(f"table: {to / 'index.html'}")
