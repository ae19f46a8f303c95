"""The analysis `gradients`: tables, the picture and the curves of measures/gradients.py."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pretrain.analysis.findings import Cell, Findings, Point, Table
from pretrain.analysis.measures.gradients import Gradients, Measured, measure_gradients
from pretrain.analysis.panels import (
    PANEL_HEIGHT,
    draw_by_depth,
    empty_figure,
    in_words,
    legend_of_blocks,
    legend_of_runs,
    log_scale,
    rows_of_panels,
    set_up,
    whole_ticks,
)
from pretrain.analysis.subjects import Subject, measured_at_steps
from pretrain.reports.html import line_style

CAPTION = (
    "{runs}. Above: norm of the gradient of the held-out loss with respect to the weights of "
    "each block, at each checkpoint. Below: the same over the blocks, at the first (thin) and "
    "the last checkpoint; size of the gradient with respect to the state x_l after block l, "
    "relative to that of the last one, and the cosine of the two (PLD Eq. 5)."
)


def findings(subjects: Sequence[Subject]) -> Findings:
    """Return the gradients of each run at each of its steps."""
    measured = measured_at_steps("gradients", subjects, measure_gradients)
    caption = CAPTION.format(runs=in_words(subjects, "{0.norm} norm"))
    return Findings(
        shown=_short(measured),
        tables={"weight_gradients": _weights(measured), "state_gradients": _states(measured)},
        figures={"gradients": draw_gradients(measured, caption)},
        captions=[caption],
        points=[
            Point(run, f"weight_gradients/block_{block:02d}", step, value)
            for run, steps in measured.items()
            for step, found in steps.items()
            for block, value in enumerate(found.weights, 1)
        ],
    )


def draw_gradients(measured: Measured, caption: str) -> Figure:
    """Draw a panel per run over its steps, and three panels of all runs over depth."""
    figure = empty_figure(caption, height=2 * PANEL_HEIGHT)
    depth = max(len(found.weights) for steps in measured.values() for found in steps.values())
    panels, (weights, sizes, cosines) = rows_of_panels(figure, (len(measured), 3))
    for axes, (run, steps) in zip(panels, measured.items(), strict=True):
        axes.sharey(panels[0])
        set_up(axes, run, xlabel="optimizer steps", ylabel="norm of dE/dW of a block, nats")
        curves = list(zip(*(found.weights for found in steps.values()), strict=True))
        draw_by_depth(axes, list(steps), curves, depth=depth)
        log_scale(axes)
        whole_ticks(axes)
    legend_of_blocks(figure, panels)
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
    panels: tuple[Axes, Axes, Axes], found: Gradients, number: int, run: str, width: float
) -> None:
    style = {**line_style(number), "markersize": 3.5, "linewidth": width}
    layers = range(len(found.states))
    relative = [norm / found.states[-1] for norm in found.states]
    panels[0].plot(layers[1:], found.weights, label=run, **style)
    panels[1].plot(layers, relative, **style)
    panels[2].plot(layers, found.cosines, **style)


def _weights(measured: Measured) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (run, step, block, value)
        for run, steps in measured.items()
        for step, found in steps.items()
        for block, value in enumerate(found.weights, 1)
    ]
    return Table(("run", "step", "block", "weight_gradient_norm_nats"), rows)


def _states(measured: Measured) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (run, step, layer, norm, norm / found.states[-1], cosine, residual)
        for run, steps in measured.items()
        for step, found in steps.items()
        for layer, (norm, cosine, residual) in enumerate(
            zip(found.states, found.cosines, found.residual, strict=True)
        )
    ]
    columns = ("state_gradient_norm_nats", "norm_times_last", "cosine_with_last", "residual_term")
    return Table(("run", "step", "layer", *columns), rows)


def _short(measured: Measured) -> Table:
    """Return, for the first and the last step of each run, the ends of the network."""
    rows: list[tuple[Cell, ...]] = []
    for run, steps in measured.items():
        for step in dict.fromkeys((min(steps), max(steps))):
            found = steps[step]
            first, last = found.weights[0], found.weights[-1]
            x0 = found.states[0] / found.states[-1]
            rows.append((run, step, first, last, first / last, x0, found.cosines[0]))
    return Table(
        ("run", "step", "dE/dW first", "last", "first/last", "dE/dx_0 / dE/dx_L", "cosine"), rows
    )
