"""Draw what trained models do inside: the papers' figures, for your runs.

    tupelo analyse positions runs/tupe_r
    tupelo analyse gradients runs/post runs/pre --to gradients

Writes PNG and CSV. All numbers come from the model in evaluation mode, in fp32 on the CPU, on
held-out sequences with fixed masks.
"""

import argparse
import importlib
from pathlib import Path

from data_prep.commands.options import at_least_1
from pretrain.analysis.catalog import ANALYSES
from pretrain.config.errors import ConfigError, lookup

ROWS = 128


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tupelo analyse`."""
    listed = "; ".join(f"{name}: {one.summary}" for name, one in ANALYSES.items())
    parser.add_argument("name", metavar="NAME", help=listed)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders")
    parser.add_argument(
        "--to",
        type=Path,
        metavar="FOLDER",
        help="new, empty, or with an earlier report; default: analysis/NAME in the first run",
    )
    parser.add_argument(
        "--checkpoint",
        type=int,
        metavar="STEP",
        help="of each run, 0: initial weights; default: the newest, for curves over training all",
    )
    parser.add_argument("--rows", type=at_least_1, help=f"held-out sequences (default: {ROWS})")
    parser.add_argument("--shards", type=Path, metavar="FOLDER", help="shards, if they have moved")


def main(arguments: argparse.Namespace) -> None:
    """Analyse the runs, and write the files."""
    name, analysis = arguments.name, lookup(ANALYSES, arguments.name, setting="NAME")
    for option, value in (("--rows", arguments.rows), ("--shards", arguments.shards)):
        if value is not None and not analysis.reads_rows and arguments.checkpoint != 0:
            raise ConfigError(
                f"{option}={value} has no effect: {name} looks at weights only; remove it"
            )
    # Imported late: torch and Matplotlib take seconds.
    from matplotlib import rc_context

    from pretrain.analysis.panels import STYLE, write_findings
    from pretrain.analysis.subjects import Scope, read_subjects
    from pretrain.reports.report_folder import ReportFolder

    rows = ROWS if arguments.rows is None else arguments.rows
    scope = Scope(rows, arguments.shards, arguments.checkpoint, analysis.over_training)
    subjects = read_subjects(arguments.runs, scope)
    to = arguments.to or arguments.runs[0] / "analysis" / name
    folder = ReportFolder(to, f"the analysis {name}", "--to")
    folder.refuse_if_taken()
    with rc_context(STYLE):
        module = importlib.import_module(f"pretrain.analysis.{name}")
        write_findings(module.findings(subjects), folder)
    print(f"written: {to}")
