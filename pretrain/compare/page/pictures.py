"""The pictures of a comparison: losses over every axis, time, learning rate, and layer drop."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib import colormaps
from matplotlib.ticker import MaxNLocator

from pretrain.compare.convergence import Comparison
from pretrain.compare.page.arm_lines import MOST_TICKS, column, draw_arms, panel_of_arms
from pretrain.compare.page.loss_picture import WIDE, draw_main, draw_over
from pretrain.compare.run_tables import run_speed
from pretrain.compare.runs import Arm, Run
from pretrain.profiling.phase_names import SHARES
from pretrain.reports.html import (
    BAR,
    DASHES,
    DPI,
    HEIGHT,
    INK,
    LEGEND_LINE,
    PAPER,
    WIDTH,
    Picture,
    bar_rows,
    empty_axes,
    height_of_rows,
    in_lines,
    legend_below,
    save_picture,
    set_title,
)
from pretrain.reports.words import amount

BLOCKS_IN_A_ROW = 4  # of a legend
SMALL = 0.02  # a part of the time below this share in every arm is shown with the other ones
OTHER = "other"
# How dark each part is: text on it stays readable.
DARKNESS = (0.40, 0.28, 0.18, 0.11, 0.06, 0.03)
FEWEST_LETTERS_WIDE = 0.14  # share of the width of a bar that "56 %" needs


class Pictures(NamedTuple):
    """The pictures of a page."""

    main: Picture
    axes: list[Picture]
    time: list[Picture]  # none where no run recorded its shares of time
    training: list[Picture]


def draw_pictures(comparison: Comparison, folder: Path) -> Pictures:
    """Write the pictures as PNG and SVG: held-out loss, time, training loss and schedules."""
    arms = comparison.arms
    main = save_picture(
        draw_main(comparison, width=WIDE),
        "Held-out loss over steps, and the steps of each arm on the plateau and after it",
        folder / "held_out_loss_over_step",
        narrow=draw_main(comparison, width=WIDTH),
    )
    over = []
    for axis in _other_axes(comparison):
        figure, title = draw_over(comparison, axis)
        over.append(save_picture(figure, title, folder / f"held_out_loss_over_{axis}"))
    training = [
        _draw_metric(arms, "training loss in nats", "loss", folder / "training_loss"),
        _draw_metric(arms, "learning rate", "learning_rate", folder / "learning_rate"),
    ]
    dropping = [
        arm
        for arm in arms
        if arm.runs[0].settings["layer_drop.schedule"] != "none" and arm.runs[0].metrics
    ]
    for number, arm in enumerate(dropping, 1):
        training.append(_draw_keep_rates(arm, folder / f"layer_drop_{number}"))
    return Pictures(main, over, _draw_time(comparison, folder / "time"), training)


def _other_axes(comparison: Comparison) -> list[str]:
    """Return the axes besides the steps; tokens only where steps have different numbers of them."""
    ends = [run.evaluations[-1] for arm in comparison.arms for run in arm.runs]
    is_scaled = len({end["tokens"] / end["step"] for end in ends}) == 1
    left_out = {"step", "tokens"} if is_scaled else {"step"}
    return [axis for axis in comparison.axes if axis not in left_out]


def time_parts(comparison: Comparison) -> dict[str, dict[str, float]]:
    """Return the seconds of each part of a step by arm, over its seeds the mean.

    Parts that are small in every arm are in `other`. Arms that did not record parts are left out.
    """
    means = {arm.name: _mean_seconds(arm.runs) for arm in comparison.arms}
    recorded = {name: parts for name, parts in means.items() if parts}
    large = [
        part
        for part in SHARES
        if part != OTHER
        and any(parts[part] >= SMALL * sum(parts.values()) for parts in recorded.values())
    ]
    return {
        name: {
            **{part: parts[part] for part in large},
            OTHER: sum(seconds for part, seconds in parts.items() if part not in large),
        }
        for name, parts in recorded.items()
    }


def _mean_seconds(runs: Sequence[Run]) -> dict[str, float]:
    shares = [(run_speed(run)["time_shares"], run.evaluations[-1]) for run in runs]
    known = [(parts, end["training_seconds"]) for parts, end in shares if parts]
    if not known:
        return {}
    return {part: sum(one[part] * whole for one, whole in known) / len(known) for part in SHARES}


def _draw_time(comparison: Comparison, place: Path) -> list[Picture]:
    """Draw a bar per arm: the seconds of its training, by the parts of a step."""
    seconds = time_parts(comparison)
    if not seconds:
        return []
    title = "Where the training time went"
    names = [in_lines(arm.name, 34) for arm in comparison.arms]
    parts = list(next(iter(seconds.values())))
    height = height_of_rows(names) + 0.9 + LEGEND_LINE * math.ceil(len(parts) / 3)
    figure, axes = empty_axes(width=WIDTH, height=height, dpi=DPI)
    axes.grid(visible=False)
    set_title(axes, title)
    axes.set(xlabel="seconds of training")
    longest = max(sum(found.values()) for found in seconds.values())
    axes.set_xlim(0, longest * 1.2)
    for arm, middle in zip(comparison.arms, bar_rows(axes, names), strict=True):
        found = seconds.get(arm.name)
        if found is None:
            axes.text(0, middle, "not recorded", va="center", fontsize=8)
            continue
        begin = 0.0
        for number, (part, length) in enumerate(found.items()):
            style: dict[str, Any] = {"facecolor": (0, 0, 0, DARKNESS[number]), "edgecolor": PAPER}
            label = part if arm is comparison.arms[0] else None
            axes.barh(middle, length, left=begin, height=BAR, label=label, linewidth=1, **style)
            if length > FEWEST_LETTERS_WIDE * longest:
                share = f"{length / sum(found.values()):.0%}"
                where = (begin + length / 2, middle)
                axes.text(*where, share, ha="center", va="center", fontsize=8, color=INK)
            begin += length
        total = f" {amount(begin, 'training_seconds')}"
        axes.text(begin, middle, total, va="center", fontsize=8, color=INK)
    legend_below(figure, 3)
    return [save_picture(figure, title, place)]


def _draw_metric(arms: Sequence[Arm], label: str, key: str, place: Path) -> Picture:
    title = f"{label.partition(' in ')[0].capitalize()} over steps"
    figure, axes = panel_of_arms(title, "optimizer steps", label, arms)
    draw_arms(axes, arms, lambda run: column(run.metrics, "step", key))
    return save_picture(figure, title, place)


def _draw_keep_rates(arm: Arm, place: Path) -> Picture:
    """Draw theta and, per block, the share of micro-batches that ran it since the last line."""
    run = arm.runs[0]
    steps = [row["step"] for row in run.metrics]
    num_layers = len(run.metrics[0]["keep_rates"])
    rows_of_legend = math.ceil((num_layers + 1) / BLOCKS_IN_A_ROW)
    figure, axes = empty_axes(width=WIDTH, height=HEIGHT + LEGEND_LINE * rows_of_legend, dpi=DPI)
    for layer in range(num_layers):
        rates = [row["keep_rates"][layer] for row in run.metrics]
        axes.plot(
            steps,
            rates,
            color=colormaps["viridis"](layer / num_layers),  # by depth: early dark, late light
            linestyle=DASHES[layer % len(DASHES)],
            linewidth=1.0,
            label=f"{layer + 1}",
        )
    thetas = [row["theta"] for row in run.metrics]
    axes.plot(steps, thetas, color=INK, linewidth=2.2, label="theta")
    title = f"Blocks kept by {arm.name}"
    set_title(axes, title)
    xlabel = f"optimizer steps of seed {run.settings['seed']}"
    axes.set(xlabel=xlabel, ylabel="share of micro-batches", ylim=(0, 1.03))
    axes.xaxis.set_major_locator(MaxNLocator(MOST_TICKS))
    legend_below(figure, BLOCKS_IN_A_ROW)
    return save_picture(figure, title, place)
