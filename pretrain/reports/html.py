"""Shared by the pictures of results: lines, and panels with a legend."""

import io
import math
import textwrap
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from pretrain.reports.report import Picture
from pretrain.reports.table import printable

# Okabe and Ito's colours, distinguishable with any colour vision.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
INK, MUTED, GRID = "#000000", "#595959", "#dddddd"

# Lines also differ by dash and marker: in black and white, and for any colour vision. The numbers
# of colours, dashes and markers have no common divisor: all three repeat after 280 lines.
DASHES = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)))
MARKERS = "os^DvPX*"

# A panel is about as wide as the screen of a telephone, so that its text stays readable there.
WIDTH, HEIGHT, DPI = 3.6, 2.6, 200
LEGEND_LINE = 0.19  # inches
HALF_A_LINE = 16  # letters
TITLE_LINE = 32
LABEL_LINE = 34
MOST_TICKS = 5


def line_style(number: int) -> dict[str, Any]:
    """Return colour, dash and marker of a line, for Matplotlib."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": DASHES[number % len(DASHES)],
        "marker": MARKERS[number % len(MARKERS)],
    }


def line_panel(title: str, xlabel: str, ylabel: str, labels: Sequence[str]) -> tuple[Figure, Axes]:
    """Return empty axes, and below them a legend of the lines to come, in their order."""
    labels = [in_lines(label, LABEL_LINE) for label in labels]
    columns = 2 if max(len(label) for label in labels) <= HALF_A_LINE else 1
    lines = sum(label.count("\n") + 1 for label in labels)
    height = HEIGHT + LEGEND_LINE * math.ceil(lines / columns)
    figure = Figure(figsize=(WIDTH, height), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.set_title(in_lines(title, TITLE_LINE), loc="left", fontweight="bold", fontsize=11)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    large = EngFormatter(sep="")
    axes.xaxis.set_major_formatter(lambda x, _: large(x) if x >= 1 else f"{x:g}")
    axes.xaxis.set_major_locator(MaxNLocator(MOST_TICKS, steps=[1, 2, 5, 10]))
    for number, label in enumerate(labels):
        axes.plot([], [], label=label, **line_style(number))
    figure.legend(  # below the axes, where it covers nothing
        loc="outside lower center",
        ncols=columns,
        fontsize=9,
        frameon=False,
        labelspacing=0.25,
        handlelength=3,
    )
    return figure, axes


def in_lines(text: str, letters: int) -> str:
    """Return a name for Matplotlib in lines of at most so many letters."""
    return as_written("\n".join(textwrap.wrap(text, letters)) or " ")


def as_written(text: str) -> str:
    """Escape a name for Matplotlib and XML.

    $ begins a formula, a leading _ hides a label, and XML has no control characters.
    """
    return (" " if text.startswith("_") else "") + printable(text).replace("$", r"\$")


def save_picture(figure: Figure, title: str, place: Path) -> Picture:
    """Write PLACE.png, for slides, and PLACE.svg, for papers; the page shows the latter."""
    file = io.StringIO()
    with (
        warnings.catch_warnings(),
        # Text as text, and names inside that do not depend on chance.
        rc_context({"svg.fonttype": "none", "svg.hashsalt": "picture"}),
    ):
        # Names may have letters that Matplotlib's font lacks: the browser has another font.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(place.with_name(f"{place.name}.png"))
        figure.savefig(file, format="svg", metadata={"Date": None})
    place.with_name(f"{place.name}.svg").write_text(file.getvalue(), encoding="utf-8")
    return Picture(title, file.getvalue())
