"""The figures of docs/VERDICT.md, from the studies alone."""

import math
import statistics
from pathlib import Path
from typing import Any

from intervals import PairedMean, paired_mean
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from studies import Study
from tables import losses, mean_flops, mean_loss

from pretrain.analysis.panels import empty_figure, legend_of_runs, rows_of_panels, set_up
from pretrain.reports.html import INK, line_style

HEIGHT = 3.6  # inches
OF_INTERVALS = "mean over paired seeds; 95 % interval of Student's t; hollow: one seed."


def curves(study: Study, file: Path) -> None:
    """Draw the mean held-out loss of each arm over tokens, and its last third again, larger."""
    figure = empty_figure(
        "Means over seeds; right: the last third of each; dotted: the entropy of word frequencies.",
        height=HEIGHT,
    )
    ((whole, last),) = rows_of_panels(figure, (2,))
    for axes, ylabel in ((whole, "held-out loss in nats"), (last, "")):
        set_up(axes, "", xlabel="tokens in millions", ylabel=ylabel)
    order = sorted(study.arms, key=lambda arm: mean_loss(study.of_arm(arm)))
    for number, arm in enumerate(order):
        runs = study.of_arm(arm).values()
        points: dict[int, list[float]] = {}
        for run in runs:
            for step, loss in run.curve:
                points.setdefault(step, []).append(loss)
        line = [
            (step * study.tokens_per_step / 1e6, statistics.fmean(found))
            for step, found in sorted(points.items())
            if len(found) == len(runs)  # beyond the end of one, the mean would be of others
        ]
        for axes, part in ((whole, line), (last, line[-len(line) // 3 :])):
            axes.plot(*zip(*part, strict=True), **_line_of(number))
    whole.axhline(study.entropy, color=INK, linestyle=":", linewidth=0.8)
    legend_of_runs(whole, order)
    _save(figure, file)


def clock(study: Study, file: Path) -> None:
    """Draw the held-out loss of every run over seconds of training."""
    figure, axes = _panel(
        "A line for each seed; dotted: the entropy of word frequencies.",
        xlabel="minutes of training",
        ylabel="held-out loss in nats",
    )
    for number, arm in enumerate(study.arms):
        for run in study.of_arm(arm).values():
            axes.plot(
                [seconds / 60 for seconds in run.seconds],
                [loss for _, loss in run.curve],
                **_line_of(number),
            )
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.axhline(study.entropy, color=INK, linestyle=":", linewidth=0.8)
    legend_of_runs(axes, study.arms)
    _save(figure, file)


def cost(study: Study, baseline: str, *lengths: str, file: Path) -> None:
    """Draw the loss at the end over the FLOPs of a run, both against the baseline.

    A dashed line connects the baseline with `lengths`, the same model with fewer or more steps:
    losses between them are not measured.
    """
    figure, axes = _panel(
        f"Loss at the end over cost: {OF_INTERVALS}",
        xlabel=f"FLOPs against {baseline}",
        ylabel=f"nats against {baseline}",
    )
    flops = mean_flops(study.of_arm(baseline))
    pairs = _differences(study, baseline)
    shares = {arm: mean_flops(study.of_arm(arm)) / flops for arm in pairs}
    if lengths:
        line = [baseline, *lengths]
        axes.plot(
            [shares[arm] for arm in line],
            [pairs[arm].mean for arm in line],
            color=INK,
            linestyle="--",
            linewidth=0.8,
            label=f"other lengths of {baseline}",
        )
    for number, (arm, pair) in enumerate(pairs.items()):
        style, share = line_style(number), shares[arm]
        is_known = math.isfinite(pair.low)
        fill = "full" if is_known else "none"
        marker, color = style["marker"], style["color"]
        axes.plot(share, pair.mean, marker, color=color, fillstyle=fill, label=arm)
        if is_known:
            axes.plot([share, share], [pair.low, pair.high], color=color, linewidth=1.3)
    axes.axhline(0, color=INK, linestyle=":", linewidth=0.8)
    axes.legend(fontsize=6.5, frameon=False)
    _save(figure, file)


def _line_of(number: int) -> dict[str, Any]:
    """Return how the line of losses of an arm is drawn."""
    return {**line_style(number), "markevery": 0.1, "markersize": 3.5, "linewidth": 1.3}


def _panel(caption: str, *, xlabel: str, ylabel: str) -> tuple[Figure, Axes]:
    figure = empty_figure(caption, height=HEIGHT)
    ((axes,),) = rows_of_panels(figure, (1,))
    set_up(axes, "", xlabel=xlabel, ylabel=ylabel)
    return figure, axes


def _differences(study: Study, baseline: str) -> dict[str, PairedMean]:
    """Return the difference of each arm from the baseline, where it is known and finite."""
    against = losses(study.of_arm(baseline))
    pairs = {arm: paired_mean(losses(study.of_arm(arm)), against) for arm in study.arms}
    return {arm: pair for arm, pair in pairs.items() if pair and math.isfinite(pair.mean)}


def _save(figure: Figure, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    # Without the version of matplotlib, so that equal records give equal files.
    figure.savefig(file, metadata={"Software": None})
