"""Make a table of fine-tuning results: one row per model, one column per task.

    tupelo finetune table runs/bert_a runs/tupe_r --to scores

Folders are fine-tuned runs, or folders of sweeps.
"""

import argparse
from pathlib import Path

from finetune.report.page import print_table
from finetune.report.score_table import average_rules


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tupelo finetune table`."""
    parser.add_argument("folders", nargs="+", type=Path, help="runs or sweeps")
    parser.add_argument(
        "--to",
        type=Path,
        help="folder for page, figures and files: new, empty, or with an earlier report",
    )
    parser.add_argument(
        "--average",
        choices=list(average_rules()),
        help="how scores are averaged; default: the first; "
        + "; ".join(
            f"{name}: the {rule.metric} of a task's metrics, {rule.description}"
            for name, rule in average_rules().items()
        ),
    )
    parser.add_argument(
        "--checkpoint",
        default="newest",
        metavar="STEP",
        help="of each run: newest, all, or a step; figures show all",
    )


def main(arguments: argparse.Namespace) -> None:
    """Print the table, and write it if a folder is given."""
    print_table(
        arguments.folders, to=arguments.to, average=arguments.average, step=arguments.checkpoint
    )
