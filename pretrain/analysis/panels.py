"""Panels of the pictures: their size, their lines, and the sentences below them."""

import math
import textwrap
from collections.abc import Mapping, Sequence

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from pretrain.analysis.subjects import Subject
from pretrain.reports.html import DASHES, GRID, INK, as_written, line_style

WIDTH, DPI = 7.5, 160  # inches; 1200 pixels wide
PANEL_HEIGHT = 2.3
CAPTION_LETTERS, CAPTION_LINE = 124, 0.14  # of a line, and its height in inches
SMALL, TITLE = 7.5, 9.0  # points
MOST_TICKS = 6
LEGEND_ROWS = 16


def empty_figure(caption: str, *, height: float) -> Figure:
    """Return a figure with a caption below; `height` is that of its panels, in inches."""
    lines = textwrap.wrap(caption, CAPTION_LETTERS, break_on_hyphens=False)
    whole = height + CAPTION_LINE * (len(lines) + 1)
    figure = Figure(figsize=(WIDTH, whole), dpi=DPI, layout="constrained")
    text = as_written("\n".join(lines))
    figure.supxlabel(text, x=0.01, ha="left", fontsize=SMALL, color=INK)
    return figure


def rows_of_panels(figure: Figure, counts: Sequence[int]) -> list[list[Axes]]:
    """Divide a figure into rows, each of so many panels of equal width."""
    grid = figure.add_gridspec(len(counts), math.lcm(*counts))
    widths = [math.lcm(*counts) // count for count in counts]
    return [
        [
            figure.add_subplot(grid[row, place * width : (place + 1) * width])
            for place in range(count)
        ]
        for row, (count, width) in enumerate(zip(counts, widths, strict=True))
    ]


def set_up(axes: Axes, title: str, *, xlabel: str, ylabel: str, grid: bool = True) -> None:
    """Give a panel its title, labels and grid lines."""
    axes.set_title(as_written(title), loc="left", fontsize=TITLE, fontweight="bold")
    axes.set_xlabel(xlabel, fontsize=SMALL)
    axes.set_ylabel(ylabel, fontsize=SMALL)
    axes.tick_params(labelsize=SMALL)
    if grid:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color=GRID, linewidth=0.6)


def whole_ticks(axes: Axes) -> None:
    """Let the ticks of the horizontal axis be whole numbers: layers, steps."""
    axes.xaxis.set_major_locator(MaxNLocator(MOST_TICKS, integer=True, steps=[1, 2, 5, 10]))


def log_scale(axes: Axes) -> None:
    """Give the vertical axis a logarithmic scale with ticks at 1, 2 and 5 times powers of ten."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(labelsize=SMALL)


def draw_over_training(
    panels: Sequence[Axes], measured: Mapping[str, Mapping[int, Sequence[float]]], ylabel: str
) -> None:
    """Draw a panel per run: a line per block over the steps, early ones dark, late ones light.

    Args:
        panels: one per run.
        measured: by run and step, a value per block.
        ylabel: what the values are.
    """
    depth = max(len(values) for steps in measured.values() for values in steps.values())
    for axes, (run, steps) in zip(panels, measured.items(), strict=True):
        axes.sharey(panels[0])
        set_up(axes, run, xlabel="optimizer steps", ylabel=ylabel)
        for number, values in enumerate(zip(*steps.values(), strict=True)):
            axes.plot(
                list(steps),
                values,
                color=colormaps["viridis"](0.9 * number / max(1, depth - 1)),
                linestyle=DASHES[number % len(DASHES)],
                marker="o",
                markersize=2.5,
                linewidth=1.2,
                label=str(number + 1),
            )
        whole_ticks(axes)


def legend_of_blocks(figure: Figure, panels: Sequence[Axes]) -> None:
    """Name the lines of `draw_over_training` beside the panels, where the legend covers nothing."""
    deepest = max(panels, key=lambda axes: len(axes.lines))
    handles, labels = deepest.get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        title="block",
        loc="outside right upper",
        fontsize=6.5,
        title_fontsize=6.5,
        ncols=math.ceil(len(labels) / LEGEND_ROWS),
        frameon=False,
        labelspacing=0.3,
    )


def file_name(label: str) -> str:
    """Return the label of a run as a part of the name of a file."""
    return "".join(one if one.isalnum() or one in "-_." else "-" for one in label)


def in_words(subjects: Sequence[Subject], kind: str) -> str:
    """Return the runs, their kind, and when they are looked at, for a caption.

    Args:
        subjects: the runs.
        kind: with a field of their model settings, such as "{0.norm} norm".
    """
    kinds = [kind.format(one.settings.model) for one in subjects]
    return ", ".join(
        f"{one.label} ({kind}) {when(one.steps)}" for one, kind in zip(subjects, kinds, strict=True)
    )


def when(steps: Sequence[int]) -> str:
    """Return "after 800 steps", or "at 9 checkpoints from step 0 to 800"."""
    if len(steps) == 1:
        return f"after {steps[0]:,} steps"
    return f"at {len(steps)} checkpoints from step {min(steps):,} to {max(steps):,}"


def legend_of_runs(axes: Axes, runs: Sequence[str]) -> None:
    """Name the lines of runs, each drawn in `line_style` of its number."""
    handles = [
        Line2D([], [], label=as_written(run), markersize=3.5, **line_style(number))
        for number, run in enumerate(runs)
    ]
    axes.legend(handles=handles, fontsize=6.5, frameon=False, handlelength=3)
