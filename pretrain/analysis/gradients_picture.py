"""The picture of gradients: weights over training and depth, states over depth."""

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
from pretrain.reports.html import line_style

if TYPE_CHECKING:
    from pretrain.analysis.gradients import Gradients, Measured


def draw_gradients(measured: "Measured", caption: str) -> Figure:
    """Draw a panel per run over its steps, and three panels of all runs over depth."""
    figure = empty_figure(caption, height=2 * PANEL_HEIGHT)
    panels, (weights, sizes, cosines) = rows_of_panels(figure, (len(measured), 3))
    for axes, (run, steps) in zip(panels, measured.items(), strict=True):
        axes.sharey(panels[0])
        set_up(axes, run, xlabel="optimizer steps", ylabel="norm of dE/dW of a block, nats")
        curves = list(zip(*(found.weights for found in steps.values()), strict=True))
        draw_by_depth(axes, list(steps), curves)
        log_scale(axes)
        whole_ticks(axes)
    set_up(weights, "weights", xlabel="block", ylabel="norm of dE/dW, nats")
    set_up(sizes, "states: size", xlabel="layer l", ylabel="|dE/dx_l| / |dE/dx_L|")
    set_up(cosines, "states: direction", xlabel="layer l", ylabel="cosine of dE/dx_l, dE/dx_L")
    for number, (run, steps) in enumerate(measured.items()):
        for step in dict.fromkeys((min(steps), max(steps))):
            width = 1.6 if step == max(steps) else 0.7
            _draw_over_depth((weights, sizes, cosines), steps[step], number, run, width)
    for axes in (weights, sizes):
        log_scale(axes)
    for axes in (weights, sizes, cosines):
        whole_ticks(axes)
    legend_of_runs(weights, list(measured))
    return figure


def _draw_over_depth(
    panels: tuple[Axes, Axes, Axes], found: "Gradients", number: int, run: str, width: float
) -> None:
    style = {**line_style(number), "markersize": 3.5, "linewidth": width}
    layers = range(len(found.states))
    relative = [norm / found.states[-1] for norm in found.states]
    panels[0].plot(layers[1:], found.weights, label=run, **style)
    panels[1].plot(layers, relative, **style)
    panels[2].plot(layers, found.cosines, **style)
