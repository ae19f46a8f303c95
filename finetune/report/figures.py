"""Figures of scores: over pre-training, and over learning rates.

There is one for each metric of each development set. Models that were not pre-trained are left out
if there are others: next to them, differences between the others cannot be seen.
"""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, FixedLocator, MaxNLocator, NullLocator

from finetune.report.axes import AXES
from finetune.report.panels import Point, draw_line, draw_lines
from finetune.report.score_table import Column, ScoreTable
from finetune.report.scores import RateScores
from finetune.results.sweep_results import TableRow
from finetune.tasks.metric_names import METRIC_NAMES
from pretrain.reports.html import line_panel, save_picture
from pretrain.reports.report import Gallery, Picture

MOST_TICKS = 5


class Panel(NamedTuple):
    """One metric of one development set."""

    column: Column
    metric: str
    title: str

    @property
    def axis_label(self) -> str:
        """Return the label of the axis of scores."""
        return f"{METRIC_NAMES.get(self.metric, self.metric)} x 100"

    @property
    def file_name(self) -> str:
        """Return the end of the names of its files."""
        return re.sub(r"[^\w.-]+", "-", self.title)

    def point(self, x: float, rate: RateScores) -> Point:
        """Return the scores of this metric at a place of the horizontal axis."""
        return Point(x, rate.of_metric(self.metric))


def draw_figures(table: ScoreTable, folder: Path) -> list[Gallery]:
    """Write every picture that the table has data for, as PNG and SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    return [
        Gallery(
            f"Score over the {AXES[table.axis]}",
            "At each checkpoint the median over the seeds at the table's learning rate; the band "
            "is the range of the finished seeds. A cross marks how many seeds diverged.",
            _draw_over_pretraining(table, folder),
        ),
        Gallery(
            "Score over the learning rate",
            "The median over the seeds; the band is the range of the finished seeds. A cross marks "
            "how many seeds diverged; where the median is one of them, the line has a gap.",
            _draw_over_rates(table, folder),
        ),
    ]


def _draw_over_pretraining(table: ScoreTable, folder: Path) -> list[Picture]:
    """Draw TUPE's Fig. 4b and 4c and PLD's Fig. 10; nothing if no model has two checkpoints."""
    models: dict[str, list[TableRow]] = {}
    for row in table.costs:
        models.setdefault(table.label(row), []).append(row)
    if all(len(rows) < 2 for rows in models.values()):
        return []
    pictures, axis, place = [], AXES[table.axis], folder / f"over_{table.axis}_"
    if table.has_average:
        figure, axes = line_panel("average", axis, "score x 100", list(models))
        for number, rows in enumerate(models.values()):
            draw_line(axes, [(table.costs[row], table.average(row)) for row in rows], number)
        _label_amounts(axes)
        title = f"Average over the {axis}"
        pictures.append(save_picture(figure, title, Path(f"{place}average")))
    for panel in _panels(table):
        figure, axes = line_panel(panel.title, axis, panel.axis_label, list(models))
        lines = [
            [
                panel.point(table.costs[row], best)
                for row in rows
                if (best := table.best(row, panel.column.task)) is not None
            ]
            for rows in models.values()
        ]
        draw_lines(axes, lines, panel.column.split)
        _label_amounts(axes)
        title = f"{panel.title} over the {axis}"
        pictures.append(save_picture(figure, title, Path(f"{place}{panel.file_name}")))
    return pictures


def _draw_over_rates(table: ScoreTable, folder: Path) -> list[Picture]:
    """Draw PLD's Fig. 11."""
    pictures = []
    rows = _compared(table)
    for panel in _panels(table):
        lines = [
            [
                panel.point(scores.learning_rate, scores)
                for scores in table.rates.get((row, panel.column.task), [])
                if scores.learning_rate is not None
            ]
            for row in rows
        ]
        rates = sorted({point.x for points in lines for point in points})
        if len(rates) < 2:
            continue
        labels = [table.label(row) for row in rows]
        figure, axes = line_panel(panel.title, "learning rate", panel.axis_label, labels)
        axes.set_xscale("log")
        draw_lines(axes, lines, panel.column.split)
        _label_rates(axes, rates)
        title = f"{panel.title} over the learning rate"
        pictures.append(save_picture(figure, title, folder / f"over_rates_{panel.file_name}"))
    return pictures


def _panels(table: ScoreTable) -> list[Panel]:
    """Return a panel for every metric of every development set; as in PLD's Fig. 10."""
    panels = []
    for column in table.columns:
        metrics = table.metrics(column.task)
        for metric in metrics:
            name = f" {METRIC_NAMES.get(metric, metric)}" if len(metrics) > 1 else ""
            panels.append(Panel(column, metric, column.title + name))
    return panels


def _compared(table: ScoreTable) -> list[TableRow]:
    """Return the last shown step of each model; if none was pre-trained, all models."""
    newest = {(row.model, row.origin): row for row in table.rows if row.pretrained}
    return list(newest.values()) or [row for row in table.rows if row.origin]


def _label_amounts(axes: Axes) -> None:
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_major_locator(MaxNLocator(MOST_TICKS))


def _label_rates(axes: Axes, rates: Sequence[float]) -> None:
    """Put ticks at the rates of the trials, not at powers of ten."""
    shown = rates[:: math.ceil(len(rates) / MOST_TICKS)]
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_locator(FixedLocator(list(shown)))
    axes.set_xticklabels([f"{rate:g}".replace("e-0", "e-") for rate in shown])
