"""Compare runs: which reached a held-out loss sooner.

    tupelo compare runs/NAME/bert_a runs/NAME/tupe_r --report runs/NAME/report

The first run is the baseline; runs that differ only in the seed form one arm.
"""

import argparse
import dataclasses
from pathlib import Path

from pretrain.compare.convergence import Comparison, compare
from pretrain.compare.headline import headline
from pretrain.compare.runs import read_run
from pretrain.compare.tables import result_tables
from pretrain.reports.report_folder import ReportFolder
from pretrain.reports.terminal import fitting_table, paragraph, terminal_width

TUNING_UNKNOWN = "tuning unknown: were the learning rates of all arms tuned with equal trials?"


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
        help="your own caveat among the notes; may be repeated",
    )
    parser.add_argument(
        "--tuned",
        action="store_true",
        help="all arms were tuned with equal trials: drop the 'tuning unknown' warning",
    )


def main(arguments: argparse.Namespace) -> None:
    """Print the comparison, and write the report if --report is given."""
    comparison = compare([read_run(folder) for folder in arguments.runs], arguments.target)
    place = 1 if comparison.reasons_against_seconds else 0  # the first note names them
    notes = [*comparison.notes[:place], *arguments.note, *comparison.notes[place:]]
    notes += [] if arguments.tuned or len(comparison.arms) == 1 else [TUNING_UNKNOWN]
    comparison = dataclasses.replace(comparison, notes=notes)
    if arguments.report is None:
        print(in_text(comparison, terminal_width()))
        return
    # Matplotlib takes most of a second to import.
    from pretrain.compare.page.report import write_report

    folder = ReportFolder(arguments.report, "a comparison", "--report")
    folder.refuse_if_taken()
    print(in_text(comparison, terminal_width()))
    write_report(comparison, folder)
    print(f"\nreport: {arguments.report / 'index.html'}")


def in_text(comparison: Comparison, width: int) -> str:
    """Return what was compared, tables and notes, in lines of `width` letters."""
    tables = [
        f"{table.title}\n\n"
        + fitting_table(table.headers, table.rows, width, text_columns=table.text_columns)
        + (f"\n\n{paragraph(table.remark, width)}" if table.remark else "")
        for table in result_tables(comparison)
    ]
    words = [paragraph(sentence, width, rest="  ") for sentence in headline(comparison)]
    notes = [paragraph(note, width, first="note: ", rest="      ") for note in comparison.notes]
    return "\n\n".join(filter(None, ["\n".join(words), *tables, "\n".join(notes)]))
