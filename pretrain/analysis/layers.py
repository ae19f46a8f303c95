"""The analysis `layers`: tables, the picture and the curves of measures/layers.py."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pretrain.analysis.findings import Cell, Findings, Point, Table
from pretrain.analysis.measures.layers import Measured, measure_layers
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
from pretrain.reports.html import MUTED, line_style

BESIDE = 0.5  # of the width of a block, over which the runs are spread

CAPTION = (
    "{runs}, on held-out sequences. L2 distance and cosine of the input and the output of each "
    "block, means over all tokens. Below: norm of the mean of the residual branch f_RT over "
    "the mean of its norms at the last checkpoint, with a 95 % bootstrap interval over sequences; "
    "the grey marks are what 95 % of samples stay below if the mean is zero (PLD Eq. 8)."
)


def findings(subjects: Sequence[Subject]) -> Findings:
    """Return the changes of each block of each run at each of its steps."""
    measured = measured_at_steps("layers", subjects, measure_layers)
    caption = CAPTION.format(runs=in_words(subjects, "{0.norm} norm"))
    return Findings(
        shown=_short(measured),
        tables={"layers": _table(measured)},
        figures={"layers": draw_layers(measured, caption)},
        captions=[caption],
        points=[
            Point(run, f"{curve}/block_{block:02d}", step, value)
            for run, steps in measured.items()
            for step, changes in steps.items()
            for block, change in enumerate(changes, 1)
            for curve, value in (
                ("distance_of_output_and_input", change.distance),
                ("cosine_of_output_and_input", change.cosine),
                ("mean_of_branch", change.mean.ratio),
            )
        ],
    )


def draw_layers(measured: Measured, caption: str) -> Figure:
    """Draw distance and cosine over steps, a panel per run each, and the means over blocks."""
    figure = empty_figure(caption, height=2.8 * PANEL_HEIGHT)
    depth = max(len(changes) for steps in measured.values() for changes in steps.values())
    distances, cosines, (means,) = rows_of_panels(figure, (len(measured), len(measured), 1))
    for number, (run, steps) in enumerate(measured.items()):
        moments, changes = list(steps), list(zip(*steps.values(), strict=True))
        upper, lower = distances[number], cosines[number]
        upper.sharey(distances[0])
        lower.sharey(cosines[0])
        set_up(upper, run, xlabel="optimizer steps", ylabel="L2 distance, input to output")
        curves = [[one.distance for one in block] for block in changes]
        draw_by_depth(upper, moments, curves, depth=depth)
        log_scale(upper)
        set_up(lower, run, xlabel="optimizer steps", ylabel="cosine, input and output")
        curves = [[one.cosine for one in block] for block in changes]
        draw_by_depth(lower, moments, curves, depth=depth)
        for axes in (upper, lower):
            whole_ticks(axes)
    legend_of_blocks(figure, distances)
    _draw_means(means, measured)
    return figure


def _draw_means(axes: Axes, measured: Measured) -> None:
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


def _table(measured: Measured) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (run, step, block, *change[:3], *change.mean, *(change.to_last or ("",) * 4))
        for run, steps in measured.items()
        for step, changes in steps.items()
        for block, change in enumerate(changes, 1)
    ]
    names = ("", "_low", "_high", "_zero_mean")
    return Table(
        (
            *("run", "step", "block", "distance", "distance_times_input", "cosine"),
            *(f"branch_mean_ratio{name}" for name in names),
            *(f"mean_ratio_to_last{name}" for name in names),
        ),
        rows,
    )


def _short(measured: Measured) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for run, steps in measured.items():
        step = max(steps)
        for block, change in enumerate(steps[step], 1):
            mean = change.mean
            interval = f"{mean.low:.3f} to {mean.high:.3f}"
            rows.append(
                (run, step, block, change.distance, change.cosine, mean.ratio, interval)
                + (mean.zero_mean,)
            )
    columns = ("run", "step", "block", "distance", "cosine", "mean of f_RT", "95 %", "if zero")
    return Table(columns, rows)
