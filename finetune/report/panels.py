"""Small plots of scores: lines with bands, strips of seeds, crosses for diverged seeds."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from finetune.report.scores import DIVERGED, RateScores
from pretrain.reports.html import (
    COLOURS,
    DPI,
    MARKERS,
    WIDTH,
    empty_axes,
    in_lines,
    line_style,
    set_title,
)

STRIP_LABEL = 20  # letters in a line


class Point(NamedTuple):
    """The scores at one place of the horizontal axis."""

    x: float
    rate: RateScores


def strip_panel(title: str, xlabel: str, labels: Sequence[str]) -> tuple[Figure, Axes]:
    """Return empty axes with one row for each label."""
    labels = [in_lines(label, STRIP_LABEL) for label in labels]
    row = max(0.36, 0.17 * max(label.count("\n") + 1 for label in labels))
    figure, axes = empty_axes(width=WIDTH, height=0.9 + row * len(labels), dpi=DPI, grid="x")
    set_title(axes, title)
    axes.set(xlabel=xlabel, ylim=(len(labels) - 0.5, -0.5))
    axes.set_yticks(range(len(labels)), labels, fontsize=9)
    return figure, axes


def draw_lines(axes: Axes, lines: Iterable[Sequence[Point]], split: str) -> None:
    """Draw medians as a line and the range as a band; mark diverged seeds at the bottom."""
    crosses: dict[float, int] = {}
    for number, points in enumerate(lines):
        draw_line(axes, [(point.x, point.rate.median(split)) for point in points], number)
        banded = [point for point in points if point.rate.scores(split)]
        ranges = [point.rate.scores(split) for point in banded]
        axes.fill_between(
            [point.x for point in banded],
            [100 * min(scores) for scores in ranges],
            [100 * max(scores) for scores in ranges],
            color=_colour(number),
            alpha=0.15,
            linewidth=0,
        )
        for x, rate in points:
            if rate.num_diverged:
                crosses[x] = crosses.get(x, -1) + 1  # above those of other lines
                _draw_cross(axes, (x, 0.05 + 0.09 * crosses[x]), rate, number)


def draw_line(axes: Axes, points: Sequence[tuple[float, float | None]], number: int) -> None:
    """Draw one line of fractions of 1, x 100, with a gap where there is no score."""
    values = [float("nan") if y in (None, DIVERGED) else 100 * (y or 0.0) for _, y in points]
    axes.plot(
        [x for x, _ in points],
        values,
        markersize=4.5,
        linewidth=1.6,
        **line_style(number),
    )


def draw_strip(axes: Axes, rate: RateScores, split: str, number: int) -> None:
    """Draw every seed in the row `number`, and their median as a bar."""
    scores = sorted(100 * score for score in rate.scores(split))
    # Alternately above and below the middle, so that close scores do not hide each other.
    heights = [number + 0.13 * (-1) ** place for place in range(len(scores))]
    axes.plot(scores, heights, _marker(number), color=_colour(number), markersize=5, alpha=0.7)
    median = rate.median(split)
    if median not in (None, DIVERGED):
        axes.vlines(100 * (median or 0.0), number - 0.34, number + 0.34, _colour(number), lw=2.2)
    if rate.num_diverged:
        axes.annotate(
            f"\N{MULTIPLICATION SIGN} {rate.num_diverged} of {rate.num_requested}",
            (0, number),
            xycoords=axes.get_yaxis_transform(),
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=_colour(number),
        )


def _draw_cross(axes: Axes, place: tuple[float, float], rate: RateScores, number: int) -> None:
    """Mark diverged seeds at an x and a share of the height of the axes."""
    transform = axes.get_xaxis_transform()
    axes.plot(*place, "x", color=_colour(number), transform=transform, markeredgewidth=1.8)
    axes.annotate(
        f"{rate.num_diverged} of {rate.num_requested}",
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
