"""Small plots of scores: lines with bands, crosses for diverged seeds."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes

from finetune.report.scores import DIVERGED, RateScores
from pretrain.reports.html import COLOURS, line_style


class Point(NamedTuple):
    """The scores at one place of the horizontal axis."""

    x: float
    rate: RateScores


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
