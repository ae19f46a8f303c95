"""A comparison as rows of text, for the terminal and for the report."""

import statistics
from collections.abc import Sequence

from tabulate import tabulate

from pretrain.convergence import AXES, Comparison, crossing


def table(comparison: Comparison) -> str:
    """Return the comparison as a table for the terminal."""
    return tabulate(
        table_rows(comparison),
        headers=table_headers(comparison),
        colalign=("left", *["right"] * 8),
        disable_numparse=True,
    )


def table_headers(comparison: Comparison) -> list[str]:
    """Return the names of the columns of `table_rows`."""
    to_target = [f"{name} to {comparison.target:.3f}" for name in AXES.values()]
    return ["arm", "parameters", "held-out loss", *to_target, "sooner in time", "tokens/s"]


def table_rows(comparison: Comparison) -> list[list[str]]:
    """Return a row per arm: size, final loss, what the target took, and speed."""
    rows = []
    for arm in comparison.arms:
        reached = {axis: comparison.reached(arm, axis) for axis in AXES}
        speed_up = comparison.speed_up(arm, "training_seconds")
        finished = [run.result for run in arm.runs if run.result is not None]
        rows.append(
            [
                arm.name if len(arm.runs) == 1 else f"{arm.name} ({len(arm.runs)} seeds)",
                amount(finished[0]["parameters"], "parameters") if finished else "-",
                _spread([run.final_loss for run in arm.runs]),
                *(amount(reached[axis], axis) for axis in AXES),
                "-" if speed_up is None else f"{speed_up:.2f} x",
                f"{arm.median(lambda run: run.tokens_per_second):,.0f}",
            ]
        )
    return rows


def run_headers(comparison: Comparison) -> list[str]:
    """Return the names of the columns of `run_rows`."""
    to_target = [f"{name} to {comparison.target:.3f}" for name in AXES.values()]
    return ["run", "seed", "held-out loss", "best", *to_target]


def run_rows(comparison: Comparison) -> list[list[str]]:
    """Return a row per run: what the medians of `table_rows` are taken over."""
    return [
        [
            str(run.folder),
            str(run.settings["seed"]),
            f"{run.final_loss:.3f}",
            f"{run.best_loss:.3f}",
            *(amount(crossing(run, comparison.target, axis), axis) for axis in AXES),
        ]
        for arm in comparison.arms
        for run in arm.runs
    ]


def amount(value: float | None, axis: str) -> str:
    """Return an amount as people write it; None is "not reached"."""
    if value is None:
        return "not reached"
    if axis == "training_seconds":
        minutes, seconds = divmod(round(value), 60)
        hours, minutes = divmod(minutes, 60)
        if hours:
            return f"{hours} h {minutes:02d} min"
        return f"{minutes} min {seconds:02d} s" if minutes else f"{value:.1f} s"
    if axis == "step":
        return f"{value:,.0f}"
    for size, name in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.2f} {name}"
    return f"{value:.0f}"


def _spread(values: Sequence[float]) -> str:
    median = f"{statistics.median(values):.3f}"
    return median if len(values) == 1 else f"{median} ({min(values):.3f} - {max(values):.3f})"
