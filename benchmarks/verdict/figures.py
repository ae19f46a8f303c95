"""The figures of docs/VERDICT.md, from the studies alone."""

import math
import statistics
from pathlib import Path

from intervals import paired_mean
from matplotlib import colormaps
from matplotlib.figure import Figure
from studies import Study
from tables import losses, mean_loss

DOTS_PER_INCH = 150


def curves(study: Study, file: Path) -> None:
    """Draw the held-out loss of each arm over tokens: the median over its seeds."""
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    per_step = study.shared["batch.global_sequences"] * study.shared["data.sequence_length"]
    colours = colormaps["tab20"].colors  # type: ignore[attr-defined]
    order = sorted(study.arms, key=lambda arm: mean_loss(study.of_arm(arm)))
    for arm, colour in zip(order, colours, strict=False):
        points: dict[int, list[float]] = {}
        for run in study.of_arm(arm).values():
            for step, loss in run.curve:
                points.setdefault(step, []).append(loss)
        steps = sorted(points)
        axes.plot(
            [step * per_step / 1e6 for step in steps],
            [statistics.median(points[step]) for step in steps],
            color=colour,
            label=arm,
        )
    axes.axhline(study.entropy, color="grey", linestyle=":", label="entropy of word frequencies")
    axes.set(xlabel="tokens in millions", ylabel="held-out loss in nats")
    axes.legend(fontsize=8, ncols=2)
    _save(figure, file)


def forest(study: Study, baseline: str, file: Path) -> None:
    """Draw the difference of each arm from the baseline with its 95 % interval."""
    against = losses(study.of_arm(baseline))
    pairs = {arm: paired_mean(losses(study.of_arm(arm)), against) for arm in study.arms}
    known = {
        arm: pair
        for arm, pair in pairs.items()
        if arm != baseline and pair is not None and math.isfinite(pair.mean)
    }
    order = sorted(known, key=lambda arm: -known[arm].mean)
    figure = Figure(figsize=(7, 1 + 0.32 * len(order)), layout="constrained")
    axes = figure.subplots()
    for row, arm in enumerate(order):
        pair = known[arm]
        has_interval = math.isfinite(pair.low)
        axes.plot(pair.mean, row, "o", color="black", fillstyle="full" if has_interval else "none")
        if has_interval:
            axes.plot([pair.low, pair.high], [row, row], color="black")
    axes.axvline(0, color="grey", linestyle=":")
    axes.set_yticks(range(len(order)), order)
    axes.set(xlabel=f"nats at the end against {baseline}: mean over paired seeds, 95 % interval")
    _save(figure, file)


def cost(study: Study, baseline: str, file: Path) -> None:
    """Draw the loss at the end over the FLOPs of a run, both against the baseline's mean."""
    of_baseline = study.of_arm(baseline)
    flops = statistics.fmean(run.flops for run in of_baseline.values())
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    colours = colormaps["tab20"].colors  # type: ignore[attr-defined]
    for arm, colour in zip(study.arms, colours * 3, strict=False):
        runs = study.of_arm(arm)
        pair = paired_mean(losses(runs), losses(of_baseline))
        if pair is None or not math.isfinite(pair.mean):
            continue
        share = statistics.fmean(run.flops for run in runs.values()) / flops
        reach = [pair.high - pair.mean] if math.isfinite(pair.high) else None
        axes.errorbar([share], [pair.mean], yerr=reach, fmt="o", color=colour, label=arm)
    axes.axhline(0, color="grey", linestyle=":")
    axes.set(xlabel=f"FLOPs against {baseline}", ylabel=f"nats at the end against {baseline}")
    axes.legend(fontsize=7, ncols=2)
    _save(figure, file)


def _save(figure: Figure, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    # Without the version of matplotlib, so that equal records give equal files.
    figure.savefig(file, dpi=DOTS_PER_INCH, metadata={"Software": None})
