"""Make a table of fine-tuning results: one row per model, one column per task.

    tupelo finetune table runs/NAME/bert_a runs/NAME/tupe_r --to runs/NAME/glue

Folders are pre-training runs that were fine-tuned, or folders of sweeps; several make one table.
"""

import argparse
from pathlib import Path

from finetune.report.axes import AXES, STEPS
from finetune.report.page import print_table
from finetune.report.score_table import average_rules


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tupelo finetune table`."""
    parser.add_argument("folders", nargs="+", type=Path, help="runs or sweeps")
    parser.add_argument(
        "--to",
        type=Path,
        help="folder for the page, the pictures and the files: new, empty, or with an earlier "
        "table of these folders",
    )
    parser.add_argument(
        "--replace", action="store_true", help="replace another table or report in that folder"
    )
    parser.add_argument(
        "--average",
        choices=list(average_rules()),
        help="how scores are counted; default: the first of the suite; "
        + "; ".join(
            f"{name}: the {rule.metric} of a task's metrics, {rule.description}"
            for name, rule in average_rules().items()
        ),
    )
    parser.add_argument(
        "--step",
        default="newest",
        help="of pre-training: newest (of each model), all, or a number; pictures show all",
    )
    parser.add_argument(
        "--axis",
        choices=list(AXES),
        default=STEPS,
        help="measure of pre-training: runs of different objectives are compared at equal FLOPs",
    )


def main(arguments: argparse.Namespace) -> None:
    """Print the table, and write it if a folder is given."""
    print_table(
        arguments.folders,
        to=arguments.to,
        average=arguments.average,
        step=arguments.step,
        axis=arguments.axis,
        replaces=arguments.replace,
    )
