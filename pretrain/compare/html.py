"""Shared by the pages of results: colours, empty axes, and self-contained HTML."""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jinja2
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Okabe and Ito's colours, distinguishable with any colour vision.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")


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
