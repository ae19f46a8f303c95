"""Shared by the pictures of results: lines, panels with a legend, bars with names."""

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

from pretrain.reports.report import Picture

# Okabe and Ito's colours, distinguishable with any colour vision.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
INK, PAPER, MUTED, GRID = "#000000", "#ffffff", "#595959", "#dddddd"

# Lines also differ by dash and marker: in black and white, and for any colour vision. The numbers
# of colours, dashes and markers have no common divisor: all three repeat after 280 lines.
DASHES = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)))
MARKERS = "os^DvPX*"

# A panel is about as wide as the screen of a telephone, so that its text stays readable there.
WIDTH, HEIGHT, DPI = 3.6, 2.6, 200
LEGEND_LINE = 0.19  # inches
# Inches: a line of a name over a bar, the bar, and the room below it.
NAME, BAR, ROW_GAP = 0.17, 0.16, 0.1
HALF_A_LINE = 16  # letters
TITLE_LINE = 32
LABEL_LINE = 34


def empty_axes(*, width: float = 6.4, height: float = 4.2, dpi: int = 130) -> tuple[Figure, Axes]:
    """Return a figure, in inches, with one pair of axes and horizontal grid lines."""
    figure = Figure(figsize=(width, height), dpi=dpi, layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    return figure, axes


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
    figure, axes = empty_axes(width=WIDTH, height=height, dpi=DPI)
    set_title(axes, title)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    for number, label in enumerate(labels):
        axes.plot([], [], label=label, **line_style(number))
    legend_below(figure, columns)
    return figure, axes


def set_title(axes: Axes, title: str) -> None:
    """Write a title over axes of the width of a panel, in lines that fit."""
    text = in_lines(title, TITLE_LINE)
    axes.set_title(text, loc="left", fontweight="bold", fontsize=11)


def legend_below(figure: Figure, columns: int) -> None:
    """Draw the legend of a figure below its axes, where it covers nothing."""
    figure.legend(
        loc="outside lower center",
        ncols=columns,
        fontsize=9,
        frameon=False,
        labelspacing=0.25,
        handlelength=3,
    )


def height_of_rows(names: Sequence[str]) -> float:
    """Return the height in inches of bars with a name over each; see `bar_rows`."""
    return sum(_height_of_row(name) for name in names)


def bar_rows(axes: Axes, names: Sequence[str]) -> list[float]:
    """Prepare axes for a horizontal bar per name, and write each name with its line over its bar.

    Returns:
        The middle of each bar; heights are in inches, see `BAR`.
    """
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set(yticks=[], ylim=(height_of_rows(names), 0))
    across = axes.get_yaxis_transform()
    middles = []
    below = 0.0
    for number, name in enumerate(names):
        line = below + NAME / 2
        axes.plot(
            [0, 0.03, 0.06], [line] * 3, transform=across, markevery=[1], **line_style(number)
        )
        axes.text(0.075, line - NAME / 2, name, transform=across, va="top", fontsize=9)
        below += _height_of_row(name)
        middles.append(below - ROW_GAP - BAR / 2)
    return middles


def _height_of_row(name: str) -> float:
    return NAME * (name.count("\n") + 1) + BAR + ROW_GAP


def in_lines(text: str, letters: int) -> str:
    """Return a name for Matplotlib in lines of at most so many letters."""
    return as_written("\n".join(textwrap.wrap(text, letters)) or " ")


def as_written(text: str) -> str:
    """Escape a name for Matplotlib and XML.

    $ begins a formula, a leading _ hides a label, and XML has no control characters.
    """
    printable = "".join(one if one.isprintable() or one == "\n" else "?" for one in text)
    return (" " if text.startswith("_") else "") + printable.replace("$", r"\$")


def save_picture(
    figure: Figure, title: str, place: Path, *, narrow: Figure | None = None
) -> Picture:
    """Write PLACE.png, for slides, and PLACE.svg, for papers; the page shows the latter."""
    with warnings.catch_warnings():
        # Names may have letters that Matplotlib's font lacks: the browser has another font.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(place.with_name(f"{place.name}.png"))
        svg = _svg_of(figure)
        narrow_svg = "" if narrow is None else _svg_of(narrow)
    place.with_name(f"{place.name}.svg").write_text(svg, encoding="utf-8")
    return Picture(title, svg, narrow_svg)


def _svg_of(figure: Figure) -> str:
    file = io.StringIO()
    # Text is written as text; names inside the file do not depend on chance.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "picture"}):
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()
