"""Pictures of scores: against pre-training steps, against learning rates, and seed by seed.

There is one for each development set. Models that were not pre-trained are left out wherever there
are others: beside them, all others look alike.
"""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, FixedLocator, MaxNLocator, NullLocator

from finetune.report.panels import (
    Point,
    draw_line,
    draw_lines,
    draw_strip,
    line_panel,
    save_picture,
    strip_panel,
)
from finetune.report.score_table import Column, ScoreTable
from finetune.results.records import Row
from finetune.tasks.glue import GLUE
from pretrain.compare.html import Picture

MOST_TICKS = 5


class Group(NamedTuple):
    """Pictures of one kind."""

    heading: str
    text: str
    pictures: list[Picture]


def draw_figures(table: ScoreTable, folder: Path) -> list[Group]:
    """Write every picture that the table has something for, as PNG and SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    groups = [
        Group(
            "Score over the steps of pre-training",
            "At each checkpoint the median over the seeds at the best learning rate; the band is "
            "the range of the finished seeds. A cross says how many seeds diverged.",
            _draw_over_steps(table, folder),
        ),
        Group(
            "Score over the learning rate",
            "The median over the seeds; the band is the range of the finished seeds. A cross says "
            "how many seeds diverged; where the median is one of them, the line has a gap.",
            _draw_over_rates(table, folder),
        ),
        Group(
            "Seed by seed",
            "Every finished seed at the best learning rate, and the median as a bar. A cross "
            "says how many seeds diverged.",
            _draw_seeds(table, folder),
        ),
    ]
    return [group for group in groups if group.pictures]


def _draw_over_steps(table: ScoreTable, folder: Path) -> list[Picture]:
    """Draw what TUPE's Fig. 4c and PLD's Fig. 10 show; nothing if no model has two steps."""
    models: dict[str, list[Row]] = {}
    for row in table.every_row:
        if row.pretrained and row.step is not None:
            models.setdefault(table.label(row), []).append(row)
    if all(len(rows) < 2 for rows in models.values()):
        return []
    pictures = []
    if table.has_average:
        figure, axes = line_panel("average", "steps of pre-training", "score x 100", list(models))
        for number, rows in enumerate(models.values()):
            averages = [(float(row.step or 0), table.average(row)) for row in rows]
            draw_line(axes, averages, number)
        _label_steps(axes)
        title = "Average over the steps of pre-training"
        pictures.append(save_picture(figure, title, folder / "over_steps_average"))
    for column in table.columns:
        figure, axes = line_panel(
            column.title, "steps of pre-training", _metric(table, column), list(models)
        )
        lines = [
            [
                Point(float(row.step or 0), cell)
                for row in rows
                if (cell := table.best(row, column.task)) is not None
            ]
            for rows in models.values()
        ]
        draw_lines(axes, lines, column.split)
        _label_steps(axes)
        title = f"{column.title} over the steps of pre-training"
        pictures.append(save_picture(figure, title, folder / f"over_steps_{_file_name(column)}"))
    return pictures


def _draw_over_rates(table: ScoreTable, folder: Path) -> list[Picture]:
    """Draw what PLD's Fig. 11 shows."""
    pictures = []
    rows = _compared(table)
    for column in table.columns:
        lines = [
            [
                Point(cell.learning_rate, cell)
                for cell in table.cells.get((row, column.task), [])
                if cell.learning_rate is not None
            ]
            for row in rows
        ]
        rates = sorted({point.x for points in lines for point in points})
        if len(rates) < 2:
            continue
        labels = [table.label(row) for row in rows]
        figure, axes = line_panel(column.title, "learning rate", _metric(table, column), labels)
        axes.set_xscale("log")
        draw_lines(axes, lines, column.split)
        _label_rates(axes, rates)
        title = f"{column.title} over the learning rate"
        pictures.append(save_picture(figure, title, folder / f"over_rates_{_file_name(column)}"))
    return pictures


def _draw_seeds(table: ScoreTable, folder: Path) -> list[Picture]:
    pictures = []
    rows = _compared(table)
    for column in table.columns:
        cells = [table.best(row, column.task) for row in rows]
        if all(cell is None or len(cell.scores(column.split)) < 2 for cell in cells):
            continue
        labels = [table.label(row) for row in rows]
        figure, axes = strip_panel(column.title, _metric(table, column), labels)
        for number, cell in enumerate(cells):
            if cell is not None:
                draw_strip(axes, cell, column.split, number)
        axes.xaxis.set_major_locator(MaxNLocator(MOST_TICKS))
        title = f"{column.title}, seed by seed"
        pictures.append(save_picture(figure, title, folder / f"seeds_{_file_name(column)}"))
    return pictures


def _compared(table: ScoreTable) -> list[Row]:
    """Return the last shown step of each model; all models where none was pre-trained."""
    newest = {(row.model, row.origin): row for row in table.rows if row.pretrained}
    return list(newest.values()) or [row for row in table.rows if row.origin]


def _label_steps(axes: Axes) -> None:
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_major_locator(MaxNLocator(MOST_TICKS))


def _label_rates(axes: Axes, rates: Sequence[float]) -> None:
    """Put ticks at the rates that were tried, not at powers of ten."""
    shown = rates[:: math.ceil(len(rates) / MOST_TICKS)]
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_locator(FixedLocator(list(shown)))
    axes.set_xticklabels([f"{rate:g}".replace("e-0", "e-") for rate in shown])


def _metric(table: ScoreTable, column: Column) -> str:
    """Return what the axis of the scores measures."""
    if column.task not in GLUE:
        return "score x 100"
    metrics = GLUE[column.task].metrics
    if table.counting == "tupe" or len(metrics) == 1:
        return f"{metrics[0]} x 100"
    return "mean of " + "\n".join([metrics[0], f"and {' and '.join(metrics[1:])} x 100"])


def _file_name(column: Column) -> str:
    return re.sub(r"[^\w.-]+", "-", column.title)
