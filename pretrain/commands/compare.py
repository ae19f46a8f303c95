"""Compare runs: which reached a held-out loss sooner.

    tupelo compare runs/NAME/bert_a runs/NAME/tupe_r --report runs/NAME/report

The first run is the baseline; runs that differ only in the seed form one arm.
"""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tupelo compare`."""
    parser.add_argument("runs", nargs="+", type=Path, help="run folders, the baseline first")
    parser.add_argument(
        "--target",
        default="auto",
        help="held-out loss in nats; auto: that of the baseline at its end",
    )
    parser.add_argument("--report", type=Path, help="folder for the page, pictures and numbers")


def main(arguments: argparse.Namespace) -> None:
    """Print the comparison, and write the report if --report is given."""
    # Imported late: pictures and tables take seconds.
    from pretrain.compare.convergence import compare, read_run
    from pretrain.compare.report import write_report
    from pretrain.compare.tables import table

    comparison = compare([read_run(folder) for folder in arguments.runs], arguments.target)
    print(table(comparison))
    for note in comparison.notes:
        print(f"note: {note}")
    if arguments.report is not None:
        write_report(comparison, arguments.report)
        print(f"report: {arguments.report / 'index.html'}")
