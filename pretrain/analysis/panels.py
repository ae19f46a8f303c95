"""What an analysis found, how it is written, and panels of its pictures."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from data_prep.files.atomic import save_text
from pretrain.reports.html import DASHES, GRID, as_written
from pretrain.reports.report_folder import ReportFolder
from pretrain.reports.table import as_csv

WIDTH, PANEL_HEIGHT = 7.5, 2.3  # inches
CAPTION_LETTERS, CAPTION_LINE = 124, 0.14  # of a line, and its height in inches
MOST_TICKS = 6
LEGEND_ROWS = 16
STYLE: dict[Any, Any] = {  # sizes in points
    **{"figure.dpi": 160, "font.size": 7.5, "figure.labelsize": 7.5, "lines.markersize": 3.5},
    **{"axes.titlesize": 9, "axes.titleweight": "bold", "axes.titlelocation": "left"},
    **{"axes.spines.top": False, "axes.spines.right": False},
    **{"axes.grid": True, "axes.grid.axis": "y", "grid.color": GRID, "grid.linewidth": 0.6},
    **{"legend.fontsize": 6.5, "legend.title_fontsize": 6.5, "legend.frameon": False},
}

# By the names of the columns, which end in a unit where there is one.
Record = dict[str, Any]  # str, int or float


class Findings(NamedTuple):
    """The result of an analysis."""

    tables: dict[str, list[Record]]  # by name of their CSV file, without its ending
    figures: dict[str, Figure]  # by name of their PNG file, without its ending


def write_findings(findings: Findings, folder: ReportFolder) -> None:
    """Write figures as PNG, and tables as CSV with seven digits.

    Raises:
        ConfigError: the folder holds something else, or cannot be written.
    """
    with folder.writing() as place:
        for name, records in findings.tables.items():
            written = [
                {n: f"{one:.7g}" if isinstance(one, float) else one for n, one in record.items()}
                for record in records
            ]
            save_text(place / f"{name}.csv", as_csv(written))
        for name, figure in findings.figures.items():
            # Without its version in the file, a picture is a function of what it shows.
            figure.savefig(place / f"{name}.png", metadata={"Software": None})


def empty_figure(caption: str, *, height: float) -> Figure:
    """Return a figure with a caption below; `height` is that of its panels, in inches."""
    lines = textwrap.wrap(caption, CAPTION_LETTERS, break_on_hyphens=False)
    whole = height + CAPTION_LINE * (len(lines) + 1)
    figure = Figure(figsize=(WIDTH, whole), layout="constrained")
    figure.supxlabel(as_written("\n".join(lines)), x=0.01, ha="left")
    return figure


def rows_of_panels(figure: Figure, counts: Sequence[int]) -> list[list[Axes]]:
    """Divide a figure into rows, each of so many panels of equal width."""
    rows = figure.subfigures(len(counts), squeeze=False)[:, 0]
    return [[*row.subplots(1, n, squeeze=False)[0]] for row, n in zip(rows, counts, strict=True)]


def whole_ticks(axes: Axes) -> None:
    """Let the ticks of the horizontal axis be whole numbers: layers, steps."""
    axes.xaxis.set_major_locator(MaxNLocator(MOST_TICKS, integer=True, steps=[1, 2, 5, 10]))


def log_scale(axes: Axes) -> None:
    """Give the vertical axis a logarithmic scale with ticks at 1, 2 and 5 times powers of ten."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def draw_over_training(
    panels: Sequence[Axes], measured: Mapping[str, Mapping[int, Sequence[float]]], ylabel: str
) -> None:
    """Draw a panel per run: a line per block over the steps, early ones dark, late ones light."""
    depth = max(len(values) for steps in measured.values() for values in steps.values())
    for axes, (run, steps) in zip(panels, measured.items(), strict=True):
        axes.sharey(panels[0])
        axes.set(title=as_written(run), xlabel="optimizer steps", ylabel=ylabel)
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
        ncols=math.ceil(len(labels) / LEGEND_ROWS),
        labelspacing=0.3,
    )
