"""Shared by the pages of results: lines, panels with a legend, and self-contained HTML."""

import base64
import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jinja2
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Okabe and Ito's colours, distinguishable with any colour vision.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")


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


class Picture(NamedTuple):
    """A PNG file and its title."""

    title: str
    file: Path


def empty_axes(
    *, width: float = 6.4, height: float = 4.2, dpi: int = 130, grid: Literal["x", "y"] = "y"
) -> tuple[Figure, Axes]:
    """Return a figure, in inches, with one pair of axes and grid lines for one of them."""
    figure = Figure(figsize=(width, height), dpi=dpi, layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, color="0.9", linewidth=0.6)
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


def in_lines(text: str, letters: int) -> str:
    """Return a name for Matplotlib in lines of at most so many letters."""
    return as_written("\n".join(textwrap.wrap(text, letters)) or " ")


def as_written(text: str) -> str:
    """Escape a name for Matplotlib: $ begins a formula, and a leading _ hides a label."""
    return (" " if text.startswith("_") else "") + text.replace("$", r"\$")


def render_page(template: Path, pictures: Sequence[Picture], **values: Any) -> str:
    """Fill a template that extends page.html.j2; the pictures are embedded."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([template.parent, Path(__file__).parent]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    inline = [
        {"title": title, "data": base64.b64encode(file.read_bytes()).decode()}
        for title, file in pictures
    ]
    return environment.get_template(template.name).render(pictures=inline, **values)
