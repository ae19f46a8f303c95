"""The phases of each arm as bars: on the plateau, from there to the target, and after it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from pretrain.compare.convergence import Comparison
from pretrain.compare.runs import Arm
from pretrain.reports.html import BAR, COLOURS, GRID, MUTED, PAPER, bar_rows
from pretrain.reports.words import amount

STAYED, TO_TARGET, AFTER = "on the plateau", "to the target", "after it"
MISSED = {STAYED: "never left the plateau", TO_TARGET: "target not reached"}
LEAST_ROOM = 0.12  # share of the width that a number needs


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
