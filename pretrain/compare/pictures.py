"""The pictures of a comparison: losses over every axis, learning rate, and layer drop."""

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from pretrain.compare.convergence import AXES, Comparison
from pretrain.compare.runs import Arm, Run, crossing
from pretrain.reports.html import (
    DASHES,
    DPI,
    HEIGHT,
    LEGEND_LINE,
    WIDTH,
    Picture,
    empty_axes,
    legend_below,
    line_panel,
    line_style,
    set_title,
)

AXIS_LABELS = {
    "step": "optimizer steps",
    "tokens": "tokens",
    "training_seconds": "training time in seconds",
    "flops": "FLOPs",
}
MOST_TICKS = 5
NUM_MARKERS = 6  # on a line
BLOCKS_IN_A_ROW = 4  # of a legend
Series = Callable[[Run], tuple[list[float], list[float]]]


def draw_pictures(comparison: Comparison, folder: Path) -> list[Picture]:
    """Draw the held-out loss over every axis, then training loss, learning rate and layer drop."""
    arms = comparison.arms
    pictures = [
        *(_draw_held_out_loss(comparison, axis, folder) for axis in comparison.axes),
        _draw_metric(arms, "training loss in nats", "loss", folder / "training_loss.png"),
        _draw_metric(arms, "learning rate", "learning_rate", folder / "learning_rate.png"),
    ]
    dropping = [
        arm
        for arm in arms
        if arm.runs[0].settings["layer_drop.schedule"] != "none" and arm.runs[0].metrics
    ]
    for number, arm in enumerate(dropping, 1):
        pictures.append(_draw_keep_rates(arm, folder / f"layer_drop_{number}.png"))
    return pictures


def height_of_line(line: tuple[Sequence[float], Sequence[float]], x: float) -> float | None:
    """Return y of a line drawn through points at a place between them; None: no line is there."""
    for (left, before), (right, after) in itertools.pairwise(zip(*line, strict=True)):
        if left < x < right and math.isfinite(before) and math.isfinite(after):
            return before + (x - left) / (right - left) * (after - before)
    heights = (y for place, y in zip(*line, strict=True) if place == x and math.isfinite(y))
    return next(heights, None)


def _draw_held_out_loss(comparison: Comparison, axis: str, folder: Path) -> Picture:
    arms, target = comparison.arms, comparison.target
    title = f"Held-out loss over {AXES[axis]}"
    figure, axes = _panel(title, AXIS_LABELS[axis], "held-out loss in nats", arms)
    axes.axhline(target, color="0.5", linewidth=0.8)
    axes.annotate(
        f"target {target:.3f}",
        (0, target),  # below the line on the left: every curve comes from above
        xycoords=("axes fraction", "data"),
        xytext=(4, -4),
        textcoords="offset points",
        va="top",
        fontsize=8,
        color="0.35",
    )
    lines = _draw_arms(axes, arms, lambda run: _column(run.evaluations, axis, "loss"))
    for number, (arm, line) in enumerate(zip(arms, lines, strict=True)):
        style = line_style(number)
        for run in arm.runs:
            place = crossing(run, target, axis)
            if place is not None and len(arm.runs) > 1:
                axes.plot(place, target, "|", color=style["color"], markersize=12, zorder=4)
        reached = comparison.reached(arm, axis)
        if reached is not None:
            # On the line, which the first evaluation can begin below the target.
            height = height_of_line(line, reached)
            dot = {"marker": style["marker"], "color": style["color"], "markeredgecolor": "black"}
            axes.plot(reached, target if height is None else height, markersize=8, zorder=5, **dot)
    return _save(figure, title, folder / f"held_out_loss_over_{axis}.png")


def _draw_metric(arms: Sequence[Arm], label: str, key: str, file: Path) -> Picture:
    title = f"{label.partition(' in ')[0].capitalize()} over steps"
    figure, axes = _panel(title, "optimizer steps", label, arms)
    _draw_arms(axes, arms, lambda run: _column(run.metrics, "step", key))
    return _save(figure, title, file)


def _draw_keep_rates(arm: Arm, file: Path) -> Picture:
    """Draw theta and, per block, the share of micro-batches that ran it since the last line."""
    run = arm.runs[0]
    steps = [row["step"] for row in run.metrics]
    num_layers = len(run.metrics[0]["keep_rates"])
    rows_of_legend = math.ceil((num_layers + 1) / BLOCKS_IN_A_ROW)
    figure, axes = empty_axes(width=WIDTH, height=HEIGHT + LEGEND_LINE * rows_of_legend, dpi=DPI)
    for layer in range(num_layers):
        rates = [row["keep_rates"][layer] for row in run.metrics]
        axes.plot(
            steps,
            rates,
            color=colormaps["viridis"](layer / num_layers),  # by depth: early dark, late light
            linestyle=DASHES[layer % len(DASHES)],
            linewidth=1.0,
            label=f"{layer + 1}",
        )
    thetas = [row["theta"] for row in run.metrics]
    axes.plot(steps, thetas, color="black", linewidth=2.2, label="theta")
    title = f"Blocks kept by {arm.name}"
    set_title(axes, title)
    xlabel = f"optimizer steps of seed {run.settings['seed']}"
    axes.set(xlabel=xlabel, ylabel="share of micro-batches", ylim=(0, 1.03))
    axes.xaxis.set_major_locator(MaxNLocator(MOST_TICKS))
    legend_below(figure, BLOCKS_IN_A_ROW)
    return _save(figure, title, file)


def _panel(title: str, xlabel: str, ylabel: str, arms: Sequence[Arm]) -> tuple[Figure, Axes]:
    figure, axes = line_panel(title, xlabel, ylabel, [arm.name for arm in arms])
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_major_locator(MaxNLocator(MOST_TICKS))
    return figure, axes


def _draw_arms(
    axes: Axes, arms: Sequence[Arm], series: Series
) -> list[tuple[list[float], list[float]]]:
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
        y = [statistics.median(line[1][place] for line in lines) for place in range(shortest)]
        # Each arm begins its markers at another place, so that equal lines show all of them.
        every = max(1, shortest // NUM_MARKERS)
        begin = number * every // len(arms)
        axes.plot(x, y, linewidth=1.6, markersize=4, markevery=(begin, every), **style)
        bold.append((x, y))
    return bold


def _column(rows: Sequence[dict[str, Any]], x: str, y: str) -> tuple[list[float], list[float]]:
    return [row[x] for row in rows], [row[y] for row in rows]


def _save(figure: Figure, title: str, file: Path) -> Picture:
    figure.savefig(file)
    return Picture(title, file)
