"""The held-out loss of the arms: curves, the plateau, the target, and phases as bars."""

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, MaxNLocator

from pretrain.compare.convergence import AXES, Comparison
from pretrain.compare.runs import Arm, Run, crossing
from pretrain.reports.html import (
    BAR,
    COLOURS,
    DPI,
    GRID,
    INK,
    MUTED,
    PAPER,
    WIDTH,
    bar_rows,
    height_of_rows,
    in_lines,
    line_panel,
    line_style,
    set_title,
)
from pretrain.reports.words import amount

AXIS_LABELS = {"training_seconds": "training time in seconds", "flops": "FLOPs"}
WIDE = 8.0  # inches: as wide as the text of a page on the screen of a computer
ABOVE_PLATEAU = 0.4  # nats shown above the entropy: higher losses are those of the first steps
MOST_LETTERS_AT_END = 16  # of a name beside its curve
RIGHT_EDGE = 1.012  # of the last step: the marks there are whole
FONT = 9
MOST_TICKS = 5
NUM_MARKERS = 6  # on a line
Line = tuple[list[float], list[float]]
STAYED, TO_TARGET, AFTER = "on the plateau", "to the target", "after it"
MISSED = {STAYED: "never left the plateau", TO_TARGET: "target not reached"}
LEAST_ROOM = 0.12  # share of the width that a number needs


def height_of_line(line: Line, x: float) -> float | None:
    """Return y of a line drawn through points at a place between them; None: no line is there."""
    for (left, before), (right, after) in itertools.pairwise(zip(*line, strict=True)):
        if left < x < right and math.isfinite(before) and math.isfinite(after):
            return before + (x - left) / (right - left) * (after - before)
    heights = (y for place, y in zip(*line, strict=True) if place == x and math.isfinite(y))
    return next(heights, None)


def draw_main(comparison: Comparison, *, width: float) -> Figure:
    """Draw the loss over the steps, and below it, over the same axis, the phases of each arm."""
    arms = comparison.arms
    names = [in_lines(arm.name, round(width * 10)) for arm in arms]
    rows = height_of_rows(names)
    curves = 3.4 if width > WIDTH else 2.6
    figure = Figure(figsize=(width, curves + rows + 0.8), dpi=DPI, layout="constrained")
    axes, bars = figure.subplots(
        2, sharex=True, gridspec_kw={"height_ratios": [curves, rows], "hspace": 0.03}
    )
    set_title(axes, "Held-out loss in nats over steps")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.tick_params(labelsize=FONT)
    lines = draw_curves(axes, comparison, "step")
    last = max(run.evaluations[-1]["step"] for arm in arms for run in arm.runs)
    axes.set_xlim(0, last * RIGHT_EDGE)
    if width > WIDTH:
        _label_ends(axes, arms, lines, curves)
    draw_phases(bars, comparison, names)
    bars.xaxis.set_major_formatter(EngFormatter(sep=""))
    bars.xaxis.set_major_locator(MaxNLocator(MOST_TICKS))
    bars.tick_params(labelsize=FONT)
    bars.set_xlabel("optimizer steps", fontsize=FONT)
    figure.legend(
        handles=legend_of_phases(comparison),
        loc="outside lower center",
        ncols=3,
        fontsize=8,
        frameon=False,
        handlelength=1.3,
        columnspacing=1.0,
    )
    return figure


def draw_over(comparison: Comparison, axis: str) -> tuple[Figure, str]:
    """Draw the loss over another axis; return the picture and its title."""
    title = f"Held-out loss over {AXES[axis]}"
    names = [arm.name for arm in comparison.arms]
    figure, axes = line_panel(title, AXIS_LABELS[axis], "held-out loss in nats", names)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_major_locator(MaxNLocator(MOST_TICKS))
    draw_curves(axes, comparison, axis)
    axes.set_xlim(left=0)
    return figure, title


def draw_curves(axes: Axes, comparison: Comparison, axis: str) -> list[Line]:
    """Draw curves with marks where they leave the plateau (hollow) and reach the target (full).

    Returns:
        The line of each arm.
    """
    arms = comparison.arms
    lines = draw_arms(
        axes,
        arms,
        lambda run: ([row[axis] for row in run.evaluations], [r["loss"] for r in run.evaluations]),
    )
    ends = [(comparison.target, comparison.reached, True)]
    if comparison.plateau_end is not None:
        ends.append((comparison.plateau_end, comparison.left_plateau, False))
    for number, (arm, line) in enumerate(zip(arms, lines, strict=True)):
        for loss, place, is_target in ends:
            _mark(axes, arm, line, (loss, place(arm, axis), axis), number, is_target=is_target)
    _draw_plateau(axes, comparison, lines)
    axes.axhline(comparison.target, color=MUTED, linewidth=0.9)
    # Below the line on the left: every curve comes from above.
    text = f"target {comparison.target:.3f}"
    axes.annotate(text, (0, comparison.target), **_level_text(ha="left", va="top", shift=(4, -3)))
    return lines


def _mark(
    axes: Axes,
    arm: Arm,
    line: Line,
    crossed: tuple[float, float | None, str],
    number: int,
    *,
    is_target: bool,
) -> None:
    """Mark where an arm crossed a loss; `crossed` is the loss, the median place and the axis."""
    loss, median, axis = crossed
    style = line_style(number)
    for run in arm.runs:
        place = crossing(run, loss, axis)
        if place is not None and len(arm.runs) > 1:
            axes.plot(place, loss, "|", color=style["color"], markersize=12, zorder=4)
    if median is None:
        return
    # On the line, which the first evaluation can begin below the loss.
    height = height_of_line(line, median)
    axes.plot(
        median,
        loss if height is None else height,
        marker=style["marker"],
        markersize=8 if is_target else 7,
        color=style["color"] if is_target else PAPER,
        markeredgecolor=INK if is_target else style["color"],
        markeredgewidth=1.0 if is_target else 1.5,
        zorder=5,
        clip_on=False,
    )


def _draw_plateau(axes: Axes, comparison: Comparison, lines: Sequence[Line]) -> None:
    """Draw the unigram entropy, and a band down to the end of the plateau.

    The first steps far above it are cut off, unless a curve has nothing else.
    """
    entropy, end = comparison.entropy, comparison.plateau_end
    if entropy is None or end is None:
        return
    axes.axhspan(end, entropy, color=GRID, alpha=0.55, linewidth=0, zorder=0)
    axes.axhline(entropy, color=MUTED, linewidth=0.9, linestyle=(0, (4, 2)))
    highest = entropy + ABOVE_PLATEAU
    if all(min(losses) < highest for _, losses in lines):
        axes.set_ylim(top=max(min(axes.get_ylim()[1], highest), entropy + 0.2))
    text = f"unigram entropy {entropy:.3f}"
    axes.annotate(text, (1, entropy), **_level_text(ha="right", va="bottom", shift=(0, 2)))


def _level_text(*, ha: str, va: str, shift: tuple[int, int]) -> dict[str, Any]:
    return {
        "xycoords": ("axes fraction", "data"),
        "xytext": shift,
        "textcoords": "offset points",
        "ha": ha,
        "va": va,
        "fontsize": 8,
        "color": MUTED,
    }


def _label_ends(axes: Axes, arms: Sequence[Arm], lines: Sequence[Line], height: float) -> None:
    """Write name and loss beside the end of each curve, where all names are short.

    A curve ends with the first seed that an anomaly stopped: that is no end of its arm.
    """
    if any(len(arm.name) > MOST_LETTERS_AT_END for arm in arms):
        return
    ends = {
        n: line[1][-1]
        for n, line in enumerate(lines)
        if line[1] and math.isfinite(line[1][-1]) and not any(r.was_stopped for r in arms[n].runs)
    }
    low, high = axes.get_ylim()
    space = 1.35 * FONT / 72 / height * (high - low)
    order = sorted(ends, key=lambda n: ends[n])
    places = spread([ends[n] for n in order], space, high)
    for number, place in zip(order, places, strict=True):
        style = line_style(number)
        across = axes.get_yaxis_transform()
        axes.plot(
            1.02,
            place,
            marker=style["marker"],
            color=style["color"],
            markersize=6,
            transform=across,
            clip_on=False,
        )
        axes.text(
            1.035,
            place,
            f"{in_lines(arms[number].name, MOST_LETTERS_AT_END)} {ends[number]:.3f}",
            transform=across,
            va="center",
            fontsize=FONT,
        )


def spread(values: Sequence[float], space: float, high: float) -> list[float]:
    """Return ascending places near ascending values, at least `space` apart and below `high`."""
    places: list[float] = []
    for value in values:
        places.append(max(value, places[-1] + space) if places else value)
    above = high + space
    for number in reversed(range(len(places))):
        above = places[number] = min(places[number], above - space)
    return places


def draw_arms(axes: Axes, arms: Sequence[Arm], series: Callable[[Run], Line]) -> list[Line]:
    """Draw one bold line per arm: the median of its runs, which are thin lines below it.

    Returns:
        The bold lines.
    """
    bold = []
    for number, arm in enumerate(arms):
        style = line_style(number)
        lines = [series(run) for run in arm.runs]
        if len(lines) > 1:
            for x, y in lines:
                axes.plot(x, y, color=style["color"], linewidth=0.5, alpha=0.5)
        shortest = min(len(x) for x, _ in lines)
        x = [statistics.median(line[0][place] for line in lines) for place in range(shortest)]
        y = [_median([line[1][place] for line in lines]) for place in range(shortest)]
        # Each arm begins its markers at another place, so that equal lines show all of them.
        every = max(1, shortest // NUM_MARKERS)
        begin = number * every // len(arms)
        axes.plot(x, y, linewidth=1.6, markersize=4, markevery=(begin, every), **style)
        bold.append((x, y))
    return bold


def _median(values: Sequence[float]) -> float:
    """Return the median; NaN, which has no order, counts as infinite."""
    return statistics.median(math.inf if math.isnan(value) else value for value in values)


class Phase(NamedTuple):
    """A part of the training of an arm, from one amount of an axis to another."""

    name: str
    begin: float
    end: float
    is_over: bool  # False: it lasts to the end of the run


def phases(comparison: Comparison, arm: Arm, axis: str) -> list[Phase]:
    """Return what an arm did with an amount of an axis: the plateau, the way to the target, after.

    What did not happen is left out. A target above the end of the plateau leaves the plateau out.
    """
    whole = arm.median(lambda run: float(run.evaluations[-1][axis])) or 0.0
    plateau_end, reached = comparison.plateau_end, comparison.reached(arm, axis)
    places = [(TO_TARGET, reached), (AFTER, None)]
    if plateau_end is not None and comparison.target < plateau_end:
        places.insert(0, (STAYED, comparison.left_plateau(arm, axis)))
    found, begin = [], 0.0
    for name, place in places:
        end = whole if place is None else place
        if end > begin:
            found.append(Phase(name, begin, end, place is not None))
        if place is None:
            break
        begin = place
    return found


def draw_phases(bars: Axes, comparison: Comparison, names: Sequence[str]) -> None:
    """Draw a row per arm: its line and name, and below them a bar of its phases."""
    middles = bar_rows(bars, names)
    for number, (arm, middle) in enumerate(zip(comparison.arms, middles, strict=True)):
        found = phases(comparison, arm, "step")
        for phase in found:
            bars.barh(
                middle,
                phase.end - phase.begin,
                left=phase.begin,
                height=BAR,
                **_phase_style(phase.name, COLOURS[number % len(COLOURS)]),
            )
        _write_ends(
            bars, found, middle, has_diverged=arm.median(lambda run: run.final_loss) is None
        )


def legend_of_phases(comparison: Comparison) -> list[Patch]:
    """Return a patch for each phase that an arm has."""
    found = {phase.name for arm in comparison.arms for phase in phases(comparison, arm, "step")}
    names = [name for name in (STAYED, TO_TARGET, AFTER) if name in found]
    return [Patch(label=name, **_phase_style(name, MUTED)) for name in names]


def _write_ends(bars: Axes, found: Sequence[Phase], middle: float, *, has_diverged: bool) -> None:
    """Write where phases end: that of the plateau left of it, that of the target right of it."""
    whole = bars.get_xlim()[1]
    for phase in found:
        if phase.is_over:
            text = amount(phase.end, "step")
            room = phase.end if phase.name == STAYED else whole - phase.end
            is_left = (phase.name == STAYED) == (room > LEAST_ROOM * whole)
        else:
            text = "diverged" if has_diverged else MISSED.get(phase.name, "")
            is_left = True
        if text:
            bars.annotate(
                text,
                (phase.end, middle),
                xytext=(-3 if is_left else 3, 0),
                textcoords="offset points",
                ha="right" if is_left else "left",
                va="center",
                fontsize=8,
                bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 0.8, "alpha": 0.85},
            )


def _phase_style(name: str, colour: str) -> dict[str, Any]:
    """Return the filling of a phase: hatched, full or pale, which also differ in print."""
    if name == STAYED:
        return {"facecolor": GRID, "edgecolor": MUTED, "hatch": "/////", "linewidth": 0}
    if name == TO_TARGET:
        return {"facecolor": colour, "linewidth": 0}
    return {"facecolor": colour, "alpha": 0.28, "linewidth": 0}
