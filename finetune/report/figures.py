"""Figures of scores: over pre-training, and over learning rates.

There is one for each metric of each development set. Models that were not pre-trained are left out
if there are others: next to them, differences between the others cannot be seen.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.ticker import NullLocator

from finetune.report.score_table import DIVERGED, RateScores, ScoreTable
from finetune.results.result import TableRow
from finetune.tasks.metric_names import METRIC_NAMES
from pretrain.reports.html import MOST_TICKS, line_panel, line_style, save_picture
from pretrain.reports.report import Picture


class Point(NamedTuple):
    """The scores at one place of the horizontal axis, as fractions of 1."""

    x: float
    median: float | None  # None, or `DIVERGED`: the line has a gap
    scores: Sequence[float] = ()


Lines = Sequence[Sequence[Point]]  # of each model


def draw_figures(table: ScoreTable, folder: Path) -> list[Picture]:
    """Write every picture that the table has data for, as PNG and SVG: PLD's Fig. 10 and 11."""
    folder.mkdir(parents=True, exist_ok=True)
    over_steps: dict[str, list[TableRow]] = {}
    for row in table.every_row:
        if row.pretrained and row.step is not None:
            over_steps.setdefault(table.label(row), []).append(row)
    newest = {(row.model, row.origin): row for row in table.rows if row.pretrained}
    over_rates = list(newest.values()) or [row for row in table.rows if row.origin]

    def by_step(task: str) -> list[list[tuple[float, RateScores]]]:
        return [
            [(row.step or 0, best) for row in rows if (best := table.best(row, task))]
            for rows in over_steps.values()
        ]

    def by_rate(task: str) -> list[list[tuple[float, RateScores]]]:
        return [
            [(r.learning_rate, r) for r in table.rates.get((row, task), []) if r.learning_rate]
            for row in over_rates
        ]

    panels = [*_panels(table, by_step)]
    if table.averaged:
        points = over_steps.values()
        averages = [[Point(row.step or 0, table.average(row)) for row in rows] for rows in points]
        panels.insert(0, ("average", "score x 100", averages))
    names = [table.label(row) for row in over_rates]
    return [
        *_draw(panels, "steps of pre-training", list(over_steps), folder / "over_steps_"),
        *_draw(_panels(table, by_rate), "learning rate", names, folder / "over_rates_"),
    ]


def _panels(
    table: ScoreTable, lines_of: Callable[[str], list[list[tuple[float, RateScores]]]]
) -> Iterator[tuple[str, str, Lines]]:
    """Yield title, label and lines of every metric of every development set."""
    for column in table.columns:
        metrics = table.metrics(column.task)
        for metric in metrics:
            name = METRIC_NAMES.get(metric, metric)
            where = (column.split, metric)
            lines = [
                [Point(x, rate.median(*where), rate.scores(*where)) for x, rate in line]
                for line in lines_of(column.task)
            ]
            title = column.title + (f" {name}" if len(metrics) > 1 else "")
            yield title, f"{name} x 100", lines


def _draw(
    panels: Iterable[tuple[str, str, Lines]], xlabel: str, names: Sequence[str], place: Path
) -> list[Picture]:
    """Draw the panels in which a model has two points or more: medians, and bands of the range."""
    pictures = []
    for title, ylabel, lines in panels:
        if max(map(len, lines), default=0) < 2:
            continue
        figure, axes = line_panel(title, xlabel, ylabel, names)
        for number, points in enumerate(lines):
            style = line_style(number)
            medians = [math.nan if p.median in (None, DIVERGED) else p.median or 0 for p in points]
            axes.plot(
                [point.x for point in points],
                [100 * median for median in medians],
                **{"markersize": 4.5, "linewidth": 1.6, **style},
            )
            banded = [point for point in points if point.scores]
            axes.fill_between(
                [point.x for point in banded],
                [100 * min(point.scores) for point in banded],
                [100 * max(point.scores) for point in banded],
                **{"color": style["color"], "alpha": 0.15, "linewidth": 0},
            )
        if xlabel == "learning rate":  # ticks at the rates of the trials, not at powers of ten
            rates = sorted({point.x for points in lines for point in points})
            shown = rates[:: math.ceil(len(rates) / MOST_TICKS)]
            axes.set_xscale("log")
            axes.set_xticks(shown, [f"{rate:g}".replace("e-0", "e-") for rate in shown])
            axes.xaxis.set_minor_locator(NullLocator())
        file = Path(str(place) + re.sub(r"[^\w.-]+", "-", title))
        pictures.append(save_picture(figure, f"{title} over the {xlabel}", file))
    return pictures
