"""The picture of the learned positional correlations of a run."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pretrain.analysis.panels import SMALL, empty_figure, set_up
from pretrain.reports.html import line_style

if TYPE_CHECKING:
    from pretrain.analysis.positions import Head

MOST_COLUMNS = 4
HEIGHT_OF_ROW = {2: 3.9, 3: 2.7, 4: 2.2}  # inches, by the number of columns
HEIGHT_OF_BAR = 0.6
SHOWN_SHARE = 99.0  # percent of the numbers within the scale of the colours
SMALLEST_SHOWN = 1e-9  # of the largest singular value: what is smaller is rounding


def draw_positions(heads: Sequence["Head"], caption: str) -> Figure:
    """Draw a heat map per head in one scale of colours, and the singular values."""
    columns = min(MOST_COLUMNS, len(heads) + 1)
    rows = math.ceil((len(heads) + 1) / columns)
    figure = empty_figure(caption, height=rows * HEIGHT_OF_ROW[columns] + HEIGHT_OF_BAR)
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    centred = [head.correlations - head.correlations.mean(1, keepdims=True) for head in heads]
    most = float(numpy.percentile(abs(numpy.stack(centred)), SHOWN_SHARE)) or 1.0
    for number, (axes, matrix, head) in enumerate(zip(panels, centred, heads, strict=False), 1):
        title = f"head {number}: {head.pattern.name}"
        means = f"mean: to [CLS] {head.column_mean:.2g}, to words {head.words_mean:.2g}"
        set_up(axes, title, xlabel=f"key j\n{means}", ylabel="query i", grid=False)
        image = axes.imshow(matrix, cmap="RdBu_r", vmin=-most, vmax=most, interpolation="nearest")
    maps = list(panels[: len(heads)])
    bar = figure.colorbar(
        image, ax=maps, extend="both", orientation="horizontal", shrink=0.5, aspect=40
    )
    bar.set_label("v_ij less the mean of row i, added to the score", fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL)
    _draw_singular_values(panels[len(heads)], heads)
    for axes in panels[len(heads) + 1 :]:
        axes.set_axis_off()
    return figure


def _draw_singular_values(axes: Axes, heads: Sequence["Head"]) -> None:
    set_up(axes, "singular values", xlabel="number, descending", ylabel="share of the largest")
    for number, part in enumerate(heads[0].singular_values):
        shares = [head.singular_values[part] / head.singular_values[part][0] for head in heads]
        median = numpy.median(shares, axis=0)
        median = median[median > SMALLEST_SHOWN]
        style = {**line_style(number), "marker": ""}
        ranks = [head.ranks()[part] for head in heads]
        label = f"{part}: rank {_range(ranks)}"
        axes.plot(range(1, len(median) + 1), median, label=label, linewidth=1.4, **style)
    axes.set_yscale("log")
    axes.set_xlim(0, len(heads[0].correlations))
    axes.legend(fontsize=6.5, frameon=False)


def _range(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"
