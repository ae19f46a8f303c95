"""Figures of scores: over pre-training steps, over learning rates, and seed by seed.

There is one for each development set. Models that were not pre-trained are left out if there are
others: next to them, differences between the others cannot be seen.
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
    strip_panel,
)
from finetune.report.score_table import Column, ScoreTable
from finetune.results.sweep_results import TableRow
from finetune.tasks.catalog import known_tasks
from pretrain.reports.html import Picture, line_panel, save_picture

MOST_TICKS = 5


class PictureGroup(NamedTuple):
    """Pictures of one kind."""

    heading: str
    text: str
    pictures: list[Picture]


def draw_figures(table: ScoreTable, folder: Path) -> list[PictureGroup]:
    """Write every picture that the table has data for, as PNG and SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    groups = [
        PictureGroup(
            "Score over the steps of pre-training",
            "At each checkpoint the median over the seeds at the best learning rate; the band is "
            "the range of the finished seeds. A cross marks how many seeds diverged.",
            _draw_over_steps(table, folder),
        ),
        PictureGroup(
            "Score over the learning rate",
            "The median over the seeds; the band is the range of the finished seeds. A cross marks "
            "how many seeds diverged; where the median is one of them, the line has a gap.",
            _draw_over_rates(table, folder),
        ),
        PictureGroup(
            "Seed by seed",
            "Every finished seed at the best learning rate, and the median as a bar. A cross "
            "marks how many seeds diverged.",
            _draw_seeds(table, folder),
        ),
    ]
    return [group for group in groups if group.pictures]


def _draw_over_steps(table: ScoreTable, folder: Path) -> list[Picture]:
    """Draw TUPE's Fig. 4c and PLD's Fig. 10; nothing if no model has two steps."""
    models: dict[str, list[TableRow]] = {}
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
                Point(float(row.step or 0), best)
                for row in rows
                if (best := table.best(row, column.task)) is not None
            ]
            for rows in models.values()
        ]
        draw_lines(axes, lines, column.split)
        _label_steps(axes)
        title = f"{column.title} over the steps of pre-training"
        pictures.append(save_picture(figure, title, folder / f"over_steps_{_file_name(column)}"))
    return pictures


def _draw_over_rates(table: ScoreTable, folder: Path) -> list[Picture]:
    """Draw PLD's Fig. 11."""
    pictures = []
    rows = _compared(table)
    for column in table.columns:
        lines = [
            [
                Point(scores.learning_rate, scores)
                for scores in table.rates.get((row, column.task), [])
                if scores.learning_rate is not None
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
        found = [table.best(row, column.task) for row in rows]
        if all(best is None or len(best.scores(column.split)) < 2 for best in found):
            continue
        labels = [table.label(row) for row in rows]
        figure, axes = strip_panel(column.title, _metric(table, column), labels)
        for number, best in enumerate(found):
            if best is not None:
                draw_strip(axes, best, column.split, number)
        axes.xaxis.set_major_locator(MaxNLocator(MOST_TICKS))
        title = f"{column.title}, seed by seed"
        pictures.append(save_picture(figure, title, folder / f"seeds_{_file_name(column)}"))
    return pictures


def _compared(table: ScoreTable) -> list[TableRow]:
    """Return the last shown step of each model; if none was pre-trained, all models."""
    newest = {(row.model, row.origin): row for row in table.rows if row.pretrained}
    return list(newest.values()) or [row for row in table.rows if row.origin]


def _label_steps(axes: Axes) -> None:
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_major_locator(MaxNLocator(MOST_TICKS))


def _label_rates(axes: Axes, rates: Sequence[float]) -> None:
    """Put ticks at the rates of the trials, not at powers of ten."""
    shown = rates[:: math.ceil(len(rates) / MOST_TICKS)]
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_locator(FixedLocator(list(shown)))
    axes.set_xticklabels([f"{rate:g}".replace("e-0", "e-") for rate in shown])


def _metric(table: ScoreTable, column: Column) -> str:
    """Return the label of the axis of scores."""
    task = known_tasks().get(column.task)
    if task is None:
        return "score x 100"
    metrics = task.metrics
    if table.rule.metric == "first" or task.name not in table.rule.tasks or len(metrics) == 1:
        return f"{metrics[0]} x 100"
    return "mean of " + "\n".join([metrics[0], f"and {' and '.join(metrics[1:])} x 100"])


def _file_name(column: Column) -> str:
    return re.sub(r"[^\w.-]+", "-", column.title)
