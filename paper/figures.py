"""The figures of the paper, from the records alone."""

import math
import statistics
from pathlib import Path
from typing import Any

from intervals import paired_mean
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from records import Study
from tables import losses, mean_flops, mean_loss

MARKERS = "osD^vP*X<>"


def curves(study: Study, file: Path) -> None:
    """Draw the mean held-out loss of each arm over tokens, and its last third again, larger."""
    figure, (whole, last) = _panels(2, "tokens in millions", "held-out loss in nats")
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
            axes.plot(*zip(*part, strict=True), label=arm, **_line_style(number))
    _mark_entropy(whole, study)
    _save(figure, whole, file)


def clock(study: Study, file: Path) -> None:
    """Draw the held-out loss of every run over minutes of training."""
    figure, (axes,) = _panels(1, "minutes of training", "held-out loss in nats")
    for number, arm in enumerate(study.arms):
        for index, run in enumerate(study.of_arm(arm).values()):
            minutes = [seconds / 60 for seconds in run.seconds]
            label = "" if index else arm
            losses_of_run = [loss for _, loss in run.curve]
            axes.plot(minutes, losses_of_run, label=label, **_line_style(number))
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    _mark_entropy(axes, study)
    _save(figure, axes, file)


def cost(study: Study, baseline: str, file: Path) -> None:
    """Draw the loss at the end with its interval over the FLOPs, both against the baseline."""
    figure, (axes,) = _panels(1, f"FLOPs against {baseline}", f"nats against {baseline}")
    theirs = study.of_arm(baseline)
    for number, arm in enumerate(study.arms):
        pair = paired_mean(losses(study.of_arm(arm)), losses(theirs))
        if pair and math.isfinite(pair.low):
            share = mean_flops(study.of_arm(arm)) / mean_flops(theirs)
            reach = [[pair.mean - pair.low], [pair.high - pair.mean]]
            axes.errorbar(
                share, pair.mean, reach, fmt=f"C{number}{MARKERS[number % len(MARKERS)]}", label=arm
            )
    axes.axhline(0, color="k", linestyle=":", linewidth=0.8)
    _save(figure, axes, file)


def _panels(count: int, xlabel: str, ylabel: str) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(9, 3.6), dpi=150, layout="constrained")
    panels = list(figure.subplots(1, count, squeeze=False)[0])
    for axes in panels:
        axes.set_xlabel(xlabel)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel(ylabel)
    return figure, panels


def _line_style(number: int) -> dict[str, Any]:
    return {
        "color": f"C{number}",
        "marker": MARKERS[number % len(MARKERS)],
        "markevery": 0.1,
        "markersize": 4,
        "linewidth": 1.3,
    }


def _mark_entropy(axes: Axes, study: Study) -> None:
    axes.axhline(study.entropy, color="k", linestyle=":", linewidth=0.8, label="unigram entropy")


def _save(figure: Figure, labelled: Axes, file: Path) -> None:
    handles = labelled.get_legend_handles_labels()
    figure.legend(*handles, loc="outside right upper", fontsize="small", frameon=False)
    file.parent.mkdir(exist_ok=True)
    # Without the version of matplotlib, so that equal records give equal files.
    figure.savefig(file, metadata={"Software": None})
