"""Small pictures of scores: lines with bands, strips of seeds, marks for those that diverged.

They are as wide as a telephone, so that the type stays readable there.
"""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from finetune.report.scores import DIVERGED, Cell
from pretrain.compare.html import COLOURS, Picture, as_written, empty_axes

WIDTH, HEIGHT, DPI = 3.6, 2.6, 200
LEGEND_LINE = 0.19  # inches
HALF_A_LINE = 16  # letters
# Colours and markers are as many as have no common divisor: pairs repeat after 56 models.
MARKERS = "os^DvPX*"


class Point(NamedTuple):
    """One cell in a picture: its place, and what the seeds scored there."""

    x: float
    cell: Cell


def line_panel(title: str, xlabel: str, ylabel: str, labels: Sequence[str]) -> tuple[Figure, Axes]:
    """Return empty axes, and below them a legend of the lines to come, in their order."""
    columns = 2 if max(len(label) for label in labels) <= HALF_A_LINE else 1
    height = HEIGHT + LEGEND_LINE * math.ceil(len(labels) / columns)
    figure, axes = empty_axes(width=WIDTH, height=height, dpi=DPI)
    axes.set_title(as_written(title), loc="left", fontweight="bold")
    axes.set(xlabel=xlabel, ylabel=ylabel)
    for number, label in enumerate(labels):
        axes.plot([], [], label=as_written(label), marker=_marker(number), color=_colour(number))
    figure.legend(
        loc="outside lower center", ncols=columns, fontsize=9, frameon=False, labelspacing=0.25
    )
    return figure, axes


def strip_panel(title: str, xlabel: str, labels: Sequence[str]) -> tuple[Figure, Axes]:
    """Return empty axes with one row for each label."""
    height = 0.9 + 0.36 * len(labels)
    figure, axes = empty_axes(width=WIDTH, height=height, dpi=DPI, grid="x")
    axes.set_title(as_written(title), loc="left", fontweight="bold")
    axes.set(xlabel=xlabel, ylim=(len(labels) - 0.5, -0.5))
    axes.set_yticks(range(len(labels)), list(map(as_written, labels)), fontsize=9)
    return figure, axes


def draw_lines(axes: Axes, lines: Iterable[Sequence[Point]], split: str) -> None:
    """Draw medians as a line and the range as a band; mark diverged seeds at the bottom."""
    crosses: dict[float, int] = {}
    for number, points in enumerate(lines):
        draw_line(axes, [(point.x, point.cell.median(split)) for point in points], number)
        banded = [point for point in points if point.cell.scores(split)]
        ranges = [point.cell.scores(split) for point in banded]
        axes.fill_between(
            [point.x for point in banded],
            [100 * min(scores) for scores in ranges],
            [100 * max(scores) for scores in ranges],
            color=_colour(number),
            alpha=0.15,
            linewidth=0,
        )
        for x, cell in points:
            if cell.num_diverged:
                crosses[x] = crosses.get(x, -1) + 1  # above those of other lines
                _draw_cross(axes, (x, 0.05 + 0.09 * crosses[x]), cell, number)


def draw_line(axes: Axes, points: Sequence[tuple[float, float | None]], number: int) -> None:
    """Draw one line of fractions of 1, x 100, with a gap where there is no score."""
    values = [float("nan") if y in (None, DIVERGED) else 100 * (y or 0.0) for _, y in points]
    axes.plot(
        [x for x, _ in points],
        values,
        color=_colour(number),
        marker=_marker(number),
        markersize=4.5,
        linewidth=1.6,
    )


def draw_strip(axes: Axes, cell: Cell, split: str, number: int) -> None:
    """Draw every seed in the row `number`, and their median as a bar."""
    scores = sorted(100 * score for score in cell.scores(split))
    # By turns above and below the middle, so that close scores do not hide each other.
    heights = [number + 0.13 * (-1) ** place for place in range(len(scores))]
    axes.plot(scores, heights, _marker(number), color=_colour(number), markersize=5, alpha=0.7)
    median = cell.median(split)
    if median not in (None, DIVERGED):
        axes.vlines(100 * (median or 0.0), number - 0.34, number + 0.34, _colour(number), lw=2.2)
    if cell.num_diverged:
        axes.annotate(
            f"\N{MULTIPLICATION SIGN} {cell.num_diverged} of {cell.num_asked}",
            (0, number),
            xycoords=axes.get_yaxis_transform(),
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=_colour(number),
        )


def save_picture(figure: Figure, title: str, place: Path) -> Picture:
    """Write PLACE.png and PLACE.svg."""
    figure.savefig(place.with_name(f"{place.name}.svg"))
    file = place.with_name(f"{place.name}.png")
    figure.savefig(file)
    return Picture(title, file)


def _draw_cross(axes: Axes, place: tuple[float, float], cell: Cell, number: int) -> None:
    """Mark diverged seeds at an x and a share of the height of the axes."""
    transform = axes.get_xaxis_transform()
    axes.plot(*place, "x", color=_colour(number), transform=transform, markeredgewidth=1.8)
    axes.annotate(
        f"{cell.num_diverged} of {cell.num_asked}",
        place,
        xycoords=transform,
        xytext=(-6, 0),
        textcoords="offset points",
        ha="right",
        va="center",
        fontsize=8,
        color=_colour(number),
    )


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _marker(number: int) -> str:
    return MARKERS[number % len(MARKERS)]
