"""What an analysis found: tables, figures, curves and sentences, and how they are written."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure

from data_prep.files.atomic import save_text
from pretrain.reports.report_folder import ReportFolder

Cell = str | int | float
TENSORBOARD = "tensorboard"


class Table(NamedTuple):
    """Rows under named columns; the name of a column ends in its unit where it has one."""

    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]]


class Point(NamedTuple):
    """A point of a curve over training."""

    run: str
    curve: str
    step: int
    value: float


@dataclass(frozen=True)
class Findings:
    """The result of an analysis.

    Attributes:
        shown: a short table for the terminal.
        tables: by name of their CSV file, without its ending.
        figures: by name of their PNG file, without its ending.
        captions: what is plotted, and from which checkpoints; one sentence or more per figure.
        points: of curves over training, for TensorBoard.
    """

    shown: Table
    tables: dict[str, Table]
    figures: dict[str, Figure]
    captions: list[str]
    points: list[Point] = field(default_factory=list)


def write_findings(findings: Findings, folder: ReportFolder) -> None:
    """Write figures as PNG, tables as CSV, and curves for TensorBoard.

    Raises:
        ConfigError: the folder holds something else, or cannot be written.
    """
    with folder.writing() as place:
        for name, table in findings.tables.items():
            _write_csv(table, place / f"{name}.csv")
        for name, figure in findings.figures.items():
            # Without its version in the file, a picture is a function of what it shows.
            figure.savefig(place / f"{name}.png", metadata={"Software": None})
        save_text(place / "captions.txt", "\n".join(findings.captions) + "\n")
        if findings.points:
            _write_curves(findings.points, place / TENSORBOARD)


def shown_cells(table: Table) -> list[list[str]]:
    """Return the cells of a table as text, numbers with four digits."""
    return [[one if isinstance(one, str) else f"{one:.4g}" for one in row] for row in table.rows]


def _write_csv(table: Table, file: Path) -> None:
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(table.columns)
        writer.writerows(
            [f"{cell:.7g}" if isinstance(cell, float) else cell for cell in row]
            for row in table.rows
        )


def _write_curves(points: Sequence[Point], folder: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    for run in dict.fromkeys(point.run for point in points):
        writer = SummaryWriter(str(folder / run))
        for point in points:
            if point.run == run:
                writer.add_scalar(point.curve, point.value, point.step)
        writer.close()
