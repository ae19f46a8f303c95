"""Compare runs: which reached a held-out loss sooner.

    tupelo compare runs/bert_a runs/tupe_r --report report

The first run is the baseline; runs that differ only in the seed form one arm.
"""

import argparse
import dataclasses
from pathlib import Path

from pretrain.reports.compare.convergence import compare
from pretrain.reports.compare.runs import read_run
from pretrain.reports.compare.tables import report_of
from pretrain.reports.report_folder import ReportFolder
from pretrain.reports.words import terminal_width


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tupelo compare`."""
    parser.add_argument("runs", nargs="+", type=Path, help="run folders, the baseline first")
    parser.add_argument(
        "--target",
        default="auto",
        help="held-out loss in nats; auto: the highest final loss of the arms that end at least 1 "
        "nat below the unigram entropy; with fewer than two such arms, the baseline's",
    )
    parser.add_argument(
        "--report",
        type=Path,
        help="folder for page, figures and numbers: new, empty, or with an earlier report",
    )
    parser.add_argument(
        "--note",
        action="append",
        default=[],
        metavar="TEXT",
        help="your own caveat before the notes; may be repeated",
    )


def main(arguments: argparse.Namespace) -> None:
    """Print the comparison, and write the report if --report is given."""
    comparison = compare([read_run(folder) for folder in arguments.runs], arguments.target)
    comparison = dataclasses.replace(comparison, notes=[*arguments.note, *comparison.notes])
    folder = ReportFolder(arguments.report or Path(), "a comparison", "--report")
    if arguments.report is not None:
        folder.refuse_if_taken()
    print(report_of(comparison).as_text(terminal_width()))
    if arguments.report is not None:
        # Matplotlib takes most of a second to import.
        from pretrain.reports.compare.page import write_report

        write_report(comparison, folder)
        print(f"report: {arguments.report / 'index.html'}")
