"""The report of a comparison: figures, one self-contained page, the table as files."""

import math
import statistics
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from pretrain.config.run_files import PLATEAU_MARGIN
from pretrain.reports.compare.convergence import AXES, Comparison
from pretrain.reports.compare.pairs import CONFIDENCE
from pretrain.reports.compare.runs import Arm
from pretrain.reports.compare.tables import report_of, run_table, settings_table
from pretrain.reports.html import GRID, INK, MUTED, line_panel, line_style, save_picture
from pretrain.reports.report import Picture
from pretrain.reports.report_folder import ReportFolder

METHOD = f"""The held-out loss is the cross-entropy of the predicted tokens in nats, of the same
sequences with the same masks for every run, at full depth and without dropout. Time is that of
training steps, without evaluation and checkpoints. FLOPs are those of the matrix products that were
computed: a skipped block counts nothing, a recomputed one once, the head its predictions only.
Utilisation is their share of a GPU's dense rate by its datasheet, elsewhere of the rate of a large
matrix product, measured when the run started. Between evaluations after step 0 a loss is
interpolated linearly; nothing is smoothed. Steps below entropy last until it is {PLATEAU_MARGIN:g}
nats below the unigram entropy: an arm leaves the grey band at its white mark, and is at the target
at the one with a black edge. Of several seeds numbers and bold lines are medians, in which a run
that never reached the target is later than all that did; thin lines are the runs. Arms of the same
seeds are compared with the baseline seed by seed (sign test); significant means at
{CONFIDENCE:.0%}, which takes six seeds, uncorrected for the number of arms. A percentage is a share
of the baseline's."""

FIGURES = {"step": "optimizer steps", "flops": "FLOPs", "training_seconds": "seconds of training"}
ABOVE_PLATEAU = 0.4  # nats shown above the entropy: higher losses are those of the first steps
NUM_MARKERS = 6  # on a line
LEVEL_TEXT: dict[str, Any] = {
    **{"xycoords": ("axes fraction", "data"), "textcoords": "offset points"},
    **{"fontsize": 8, "color": MUTED},
}


def write_report(comparison: Comparison, folder: ReportFolder) -> None:
    """Write index.html, table.csv, table.md, table.tex and the figures.

    Raises:
        ConfigError: the folder holds something else, or cannot be written.
    """
    launches = [launch for arm in comparison.arms for launch in arm.launches]
    source, device, commit = (
        ", ".join(dict.fromkeys(launch[name] for launch in launches))
        for name in ("source", "device", "commit")
    )
    with folder.writing() as place:
        report_of(comparison).write(
            place,
            pictures=draw_pictures(comparison, place),
            details=[run_table(comparison), settings_table(comparison.arms)],
            method=METHOD,
            provenance=[f"Trained on {source}, on {device}, with the code of commit {commit}."],
        )


def draw_pictures(comparison: Comparison, folder: Path) -> list[Picture]:
    """Write figures as PNG and SVG: the held-out loss over steps, FLOPs and comparable seconds."""
    pictures, names = [], [arm.name for arm in comparison.arms]
    for axis, xlabel in FIGURES.items():
        if axis in comparison.axes:
            title = f"Held-out loss over {AXES[axis]}"
            figure, axes = line_panel(title, xlabel, "held-out loss in nats", names)
            _draw_curves(axes, comparison, axis)
            pictures.append(save_picture(figure, title, folder / f"held_out_loss_over_{axis}"))
    return pictures


def _draw_curves(axes: Axes, comparison: Comparison, axis: str) -> None:
    """Draw the arms, the plateau and the target; marks where arms leave and reach them.

    Losses of the first steps, far above the unigram entropy, are cut off, unless a curve has
    nothing else.
    """
    arms, entropy, end = comparison.arms, comparison.entropy, comparison.plateau_end
    lowest = [_draw_arm(axes, arms, number, axis) for number in range(len(arms))]
    for number, arm in enumerate(arms):
        style, reached = line_style(number), comparison.reached(arm, axis)
        marks = [(end, comparison.left_plateau(arm, axis), "#ffffff", style["color"])]
        for loss, place, face, edge in [*marks, (comparison.target, reached, style["color"], INK)]:
            if place is not None and loss is not None and not comparison.is_bound(arm, loss):
                style |= {"markerfacecolor": face, "markeredgecolor": edge, "markersize": 8}
                axes.plot(place, loss, clip_on=False, zorder=5, **style)
    if entropy is not None and end is not None:
        axes.axhspan(end, entropy, color=GRID, alpha=0.55, linewidth=0, zorder=0)
        axes.axhline(entropy, color=MUTED, linewidth=0.9, linestyle=(0, (4, 2)))
        highest = entropy + ABOVE_PLATEAU
        if max(lowest) < highest:
            axes.set_ylim(top=max(min(axes.get_ylim()[1], highest), entropy + 0.2))
        text = {**LEVEL_TEXT, "xytext": (0, 2), "ha": "right", "va": "bottom"}
        axes.annotate(f"unigram entropy {entropy:.3f}", (1, entropy), **text)
    axes.axhline(comparison.target, color=MUTED, linewidth=0.9)
    # Below the line on the left: every curve comes from above.
    text = {**LEVEL_TEXT, "xytext": (4, -3), "ha": "left", "va": "top"}
    axes.annotate(f"target {comparison.target:.3f}", (0, comparison.target), **text)
    axes.set_xlim(left=0)


def _draw_arm(axes: Axes, arms: list[Arm], number: int, axis: str) -> float:
    """Draw a bold line, the median of the runs, over thin ones; return the lowest median."""
    style = line_style(number)
    runs = arms[number].runs
    lines = [[(row[axis], row["loss"]) for row in run.evaluations] for run in runs]
    if len(lines) > 1:
        for line in lines:
            axes.plot(*zip(*line, strict=True), color=style["color"], linewidth=0.5, alpha=0.5)
    longest = max(lines, key=len)
    for run, line in zip(runs, lines, strict=True):
        if run.was_stopped:
            line += [(place, math.inf) for place, _ in longest[len(line) :]]
    points = list(zip(*lines, strict=False))  # the median ends with the shortest run
    x, y = (
        [statistics.median(one[place] for one in point) for point in points] for place in (0, 1)
    )
    # Each arm begins its markers at another place, so that equal lines show all of them.
    every = max(1, len(points) // NUM_MARKERS)
    begin = number * every // len(arms)
    axes.plot(x, y, linewidth=1.6, markersize=4, markevery=(begin, every), **style)
    return float(min(y))
