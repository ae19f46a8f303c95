"""What an analysis found: tables, figures and curves, and how they are written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from data_prep.files.atomic import save_text
from pretrain.reports.report_folder import ReportFolder
from pretrain.reports.table import as_csv

TENSORBOARD = "tensorboard"

# By the names of the columns, which end in a unit where there is one.
Record = dict[str, Any]  # str, int or float


@dataclass(frozen=True)
class Findings:
    """The result of an analysis.

    Attributes:
        shown: a short table for the terminal.
        tables: by name of their CSV file, without its ending.
        figures: by name of their PNG file, without its ending.
        captions: what is plotted, and from which checkpoints; one sentence or more per figure.
        curves: over training, for TensorBoard: columns of the first table, with the names of the
            curves; there is one for each run and block.
    """

    shown: list[Record]
    tables: dict[str, list[Record]]
    figures: dict[str, Figure]
    captions: list[str]
    curves: Mapping[str, str] = field(default_factory=dict)


def write_findings(findings: Findings, folder: ReportFolder) -> None:
    """Write figures as PNG, tables as CSV with seven digits, and curves for TensorBoard.

    Raises:
        ConfigError: the folder holds something else, or cannot be written.
    """
    with folder.writing() as place:
        for name, records in findings.tables.items():
            save_text(place / f"{name}.csv", as_csv(written(records, digits=7)))
        for name, figure in findings.figures.items():
            # Without its version in the file, a picture is a function of what it shows.
            figure.savefig(place / f"{name}.png", metadata={"Software": None})
        save_text(place / "captions.txt", "\n".join(findings.captions) + "\n")
        if findings.curves:
            _write_curves(next(iter(findings.tables.values())), findings.curves, place)


def written(records: Sequence[Record], *, digits: int = 4) -> list[dict[str, str]]:
    """Return records as text, floating-point numbers with so many digits."""
    return [
        {
            name: f"{cell:.{digits}g}" if isinstance(cell, float) else str(cell)
            for name, cell in record.items()
        }
        for record in records
    ]


def _write_curves(records: Sequence[Record], curves: Mapping[str, str], place: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    for run in dict.fromkeys(record["run"] for record in records):
        writer = SummaryWriter(str(place / TENSORBOARD / run))
        for record in records:
            if record["run"] == run:
                for column, curve in curves.items():
                    tag = f"{curve}/block_{record['block']:02d}"
                    writer.add_scalar(tag, record[column], record["step"])
        writer.close()
