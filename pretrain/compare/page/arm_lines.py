"""Lines of arms in a panel: one bold line per arm, and its runs as thin ones."""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from pretrain.compare.runs import Arm, Run
from pretrain.reports.html import line_panel, line_style

MOST_TICKS = 5
NUM_MARKERS = 6  # on a line
Line = tuple[list[float], list[float]]


def panel_of_arms(title: str, xlabel: str, ylabel: str, arms: Sequence[Arm]) -> tuple[Figure, Axes]:
    """Return empty axes with a legend of the arms."""
    figure, axes = line_panel(title, xlabel, ylabel, [arm.name for arm in arms])
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_major_locator(MaxNLocator(MOST_TICKS))
    return figure, axes


def draw_arms(axes: Axes, arms: Sequence[Arm], series: Callable[[Run], Line]) -> list[Line]:
    """Draw one bold line per arm: the median of its runs, which are thin lines below it.

    Returns:
        The bold lines.
    """
    bold = []
    for number, arm in enumerate(arms):
        style = line_style(number)
        lines = [series(run) for run in arm.runs]
        if len(lines) > 1:
            for x, y in lines:
                axes.plot(x, y, color=style["color"], linewidth=0.5, alpha=0.5)
        shortest = min(len(x) for x, _ in lines)
        x = [statistics.median(line[0][place] for line in lines) for place in range(shortest)]
        y = [_median([line[1][place] for line in lines]) for place in range(shortest)]
        # Each arm begins its markers at another place, so that equal lines show all of them.
        every = max(1, shortest // NUM_MARKERS)
        begin = number * every // len(arms)
        axes.plot(x, y, linewidth=1.6, markersize=4, markevery=(begin, every), **style)
        bold.append((x, y))
    return bold


def _median(values: Sequence[float]) -> float:
    """Return the median; NaN, which has no order, counts as infinite."""
    return statistics.median(math.inf if math.isnan(value) else value for value in values)


def column(rows: Sequence[dict[str, Any]], x: str, y: str) -> Line:
    """Return two fields of lines of metrics or evaluations."""
    return [row[x] for row in rows], [row[y] for row in rows]
