"""The picture of what blocks change: over training, and the mean of the change."""

from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pretrain.analysis.panels import (
    PANEL_HEIGHT,
    draw_by_depth,
    empty_figure,
    legend_of_runs,
    log_scale,
    rows_of_panels,
    set_up,
    whole_ticks,
)
from pretrain.reports.html import MUTED, line_style

if TYPE_CHECKING:
    from pretrain.analysis.layers import Measured

BESIDE = 0.5  # of the width of a block, over which the runs are spread


def draw_layers(measured: "Measured", caption: str) -> Figure:
    """Draw distance and cosine over steps, a panel per run each, and the means over blocks."""
    figure = empty_figure(caption, height=2.8 * PANEL_HEIGHT)
    distances, cosines, (means,) = rows_of_panels(figure, (len(measured), len(measured), 1))
    for number, (run, steps) in enumerate(measured.items()):
        moments, changes = list(steps), list(zip(*steps.values(), strict=True))
        upper, lower = distances[number], cosines[number]
        upper.sharey(distances[0])
        lower.sharey(cosines[0])
        set_up(upper, run, xlabel="optimizer steps", ylabel="L2 distance, input to output")
        draw_by_depth(upper, moments, [[one.distance for one in block] for block in changes])
        log_scale(upper)
        set_up(lower, run, xlabel="optimizer steps", ylabel="cosine, input and output")
        draw_by_depth(lower, moments, [[one.cosine for one in block] for block in changes])
        for axes in (upper, lower):
            whole_ticks(axes)
    _draw_means(means, measured)
    return figure


def _draw_means(axes: Axes, measured: "Measured") -> None:
    label = "|mean of f_RT| / mean of |f_RT|"
    set_up(axes, "mean of the residual branch", xlabel="block", ylabel=label)
    for number, steps in enumerate(measured.values()):
        changes = steps[max(steps)]
        shift = BESIDE * ((number + 0.5) / len(measured) - 0.5)
        places = [block + shift for block in range(1, len(changes) + 1)]
        means = [change.mean for change in changes]
        style = {**line_style(number), "linestyle": "", "markersize": 4}
        axes.plot(places, [mean.ratio for mean in means], **style)
        ends = [mean.low for mean in means], [mean.high for mean in means]
        axes.vlines(places, *ends, color=style["color"], linewidth=1.4)
        zero = [mean.zero_mean for mean in means]
        axes.plot(places, zero, linestyle="", marker="_", color=MUTED, markersize=9)
    axes.set_ylim(0, None)
    whole_ticks(axes)
    legend_of_runs(axes, list(measured))
