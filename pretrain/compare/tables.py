"""The tables of a comparison: cost of reaching the target, ends, arm against arm, and every run."""

import math
from typing import NamedTuple

from data_prep.files.quoting import plain
from pretrain.compare.convergence import Comparison, Pair
from pretrain.compare.runs import Arm, Run, crossing, is_below_from_the_start
from pretrain.reports.words import amount, counted

NONE = "-"
WITHIN = "\nin range"
IN_RANGE = '"in range": the difference is within the range of the seeds, and so none.'
MOST_SETTINGS = 6  # in a cell; the page lists all


class Table(NamedTuple):
    """A table with a title."""

    title: str
    headers: list[str]
    rows: list[list[str]]
    remark: str = ""
    text_columns: tuple[int, ...] = ()


def result_tables(comparison: Comparison) -> list[Table]:
    """Return the tables of the result."""
    tables = [cost_table(comparison), end_table(comparison)]
    return [*tables, pair_table(comparison)] if comparison.pairs else tables


def cost_table(comparison: Comparison) -> Table:
    """Return a row per arm: what it took to reach the target."""
    return Table(
        f"Cost of reaching {comparison.target:.3f} nats",
        ["arm", *comparison.axes.values()],
        [
            [
                _named(arm),
                *(
                    _bounded(
                        amount(comparison.reached(arm, axis), axis),
                        is_bound=comparison.is_bound(arm),
                    )
                    for axis in comparison.axes
                ),
            ]
            for arm in comparison.arms
        ],
    )


def end_table(comparison: Comparison) -> Table:
    """Return a row per arm: size, loss at the end with its range over the seeds, and speed."""
    has_time = "training_seconds" in comparison.axes
    rows = []
    for arm in comparison.arms:
        finished = [run.result for run in arm.runs if run.result is not None]
        losses = sorted(run.final_loss for run in arm.runs if math.isfinite(run.final_loss))
        size = amount(finished[0]["parameters"], "parameters") if finished else NONE
        median = arm.median(lambda run: run.final_loss)
        speed = arm.median(lambda run: run.tokens_per_second)
        rows.append(
            [
                arm.name,
                str(len(arm.runs)),
                size,
                "diverged" if median is None else f"{median:.3f}",
                f"{losses[0]:.3f} - {losses[-1]:.3f}" if len(losses) > 1 else NONE,
                *([f"{speed:,.0f}"] if has_time else []),
            ]
        )
    names = ["arm", "seeds", "parameters", "held-out loss", "over the seeds"]
    return Table("At the end", [*names, *(["tokens/s"] if has_time else [])], rows)


def pair_table(comparison: Comparison) -> Table:
    """Return a row per pair: what the arm needed, as a share of the other, and what differs."""
    rows = []
    known = {axis for pair in comparison.pairs for axis in comparison.shares(pair)}
    axes = {axis: name for axis, name in comparison.axes.items() if axis in known or axis == "step"}
    for pair in comparison.pairs:
        shares = [_share(comparison, pair, axis) for axis in axes]
        rows.append(
            [
                f"{pair.arm.name}\nagainst {pair.against.name}",
                *shares,
                _difference_at_end(comparison, pair),
                "\n".join(differences_in_words(pair)),
            ]
        )
    headers = ["arm", *axes.values(), "loss at end", "what differs"]
    remark = IN_RANGE if any(cell.endswith(WITHIN) for row in rows for cell in row) else ""
    return Table("Arm against arm", headers, rows, remark, text_columns=(len(headers) - 1,))


def run_table(comparison: Comparison) -> Table:
    """Return a row per run; the medians of the other tables are over these."""
    to_target = [f"{name} to {comparison.target:.3f}" for name in comparison.axes.values()]
    return Table(
        "Every run",
        ["run", "seed", "held-out loss", "best", *to_target],
        [
            [
                str(run.folder),
                str(run.settings["seed"]),
                f"{run.final_loss:.3f}" if math.isfinite(run.final_loss) else "diverged",
                f"{run.best_loss:.3f}",
                *_to_target(run, comparison),
            ]
            for arm in comparison.arms
            for run in arm.runs
        ],
    )


def differences_in_words(pair: Pair) -> list[str]:
    """Return "model.norm post -> pre" for each setting that differs: from `against` to `arm`."""
    found = [
        f"{name} {' -> '.join(plain(str(value)) for value in values)}"
        for name, values in pair.differing.items()
    ]
    more = len(found) - MOST_SETTINGS
    return found if more <= 0 else [*found[:MOST_SETTINGS], f"and {counted(more, 'other')}"]


def _named(arm: Arm) -> str:
    return arm.name if len(arm.runs) == 1 else f"{arm.name} ({counted(len(arm.runs), 'seed')})"


def _bounded(text: str, *, is_bound: bool) -> str:
    return f"<= {text}" if is_bound else text


def _to_target(run: Run, comparison: Comparison) -> list[str]:
    target = comparison.target
    is_bound = is_below_from_the_start(run, target)
    return [
        _bounded(amount(crossing(run, target, axis), axis), is_bound=is_bound)
        for axis in comparison.axes
    ]


def _share(comparison: Comparison, pair: Pair, axis: str) -> str:
    share = comparison.share(pair, axis)
    if share is None or comparison.is_bound(pair.against):
        return NONE
    text = _bounded(f"{share:.0%}", is_bound=comparison.is_bound(pair.arm))
    return text + WITHIN * (comparison.verdict(pair, axis) == "within")


def _difference_at_end(comparison: Comparison, pair: Pair) -> str:
    ours, others = (arm.median(lambda run: run.final_loss) for arm in (pair.arm, pair.against))
    if ours is None or others is None or not comparison.has_comparable_ends(pair):
        return NONE
    return f"{ours - others:+.3f}" + WITHIN * (pair.verdict_at_end == "within")
