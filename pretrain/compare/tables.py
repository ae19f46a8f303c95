"""The tables of a comparison: cost of reaching the target, ends, arm against arm, and every run."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from data_prep.files.quoting import plain
from pretrain.compare.bootstrap import SHARE
from pretrain.compare.convergence import Comparison
from pretrain.compare.pairs import CONFIDENCE, Interval, Pair, confidences
from pretrain.compare.plateau import PLATEAU_MARGIN
from pretrain.compare.runs import Arm, Run, crossing, is_below_from_the_start
from pretrain.reports.words import amount, counted, listed

NONE = "-"
WITHIN = "\nnot significant"
SIGNIFICANT = (
    f"Significant: the interval over seeds excludes no difference at a confidence of "
    f"{CONFIDENCE:.0%} (sign test; of unequal seeds, their ranges do not overlap)."
)
BY_SEED = (
    "Below a median over pairs of runs of equal seed: the interval of the sign test (confidence: "
    "{})."
)
BOOTSTRAP = (
    f"Bootstrap: the middle {SHARE:.0%} of medians of resampled seeds; with five or fewer it is "
    "nearly their range."
)
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
    """Return a row per arm: what it took to leave the plateau, and to reach the target."""
    has_plateau = comparison.entropy is not None
    rows = []
    for arm in comparison.arms:
        phases = _phases(comparison, arm)
        columns = ["\n".join(column) for column in zip(*phases, strict=True)]
        rows.append([_named(arm), *(columns if has_plateau else columns[1:])])
    remark = (
        f"The plateau ends {PLATEAU_MARGIN:g} nats below the unigram entropy, "
        f"{comparison.entropy:.3f}."
        if has_plateau
        else ""
    )
    names = ["arm", *(["phase"] if has_plateau else []), *comparison.axes.values()]
    title = f"Cost of reaching {comparison.target:.3f} nats"
    return Table(title, names, rows, remark, text_columns=(1,) if has_plateau else ())


def _phases(comparison: Comparison, arm: Arm) -> list[list[str]]:
    """Return the name and the cost on each axis of: leaving the plateau, the way from there, all.

    The first two are left out where the entropy is not known; all, where the plateau or the way is
    all that there was.
    """
    axes = comparison.axes
    is_bound, is_plateau_bound = comparison.is_bound(arm), comparison.is_plateau_bound(arm)
    reached = [amount(comparison.reached(arm, axis), axis) for axis in axes]
    whole = ["in all", *(_bounded(text, is_bound=is_bound) for text in reached)]
    if comparison.plateau_end is None:
        return [whole]
    if comparison.never_left_plateau(arm):
        return [["off the plateau", *["never" for _ in axes]]]
    left = [amount(comparison.left_plateau(arm, axis), axis) for axis in axes]
    phases = [
        ["off the plateau", *(_bounded(text, is_bound=is_plateau_bound) for text in left)],
    ]
    if comparison.target >= comparison.plateau_end:
        return [*phases, ["to the target", *whole[1:]]]
    way = [amount(comparison.after_plateau(arm, axis), axis) for axis in axes]
    if comparison.reached(arm, "step") is None:
        return [*phases, ["from there", *way]]
    if is_plateau_bound:
        way = [NONE if is_bound else f">= {text}" for text in way]
    return [*phases, ["from there", *way], whole]


def end_table(comparison: Comparison) -> Table:
    """Return a row per arm: size, loss at the end with its range over the seeds, and speed."""
    has_time = "training_seconds" in comparison.axes
    has_seeds = any(len(arm.runs) > 1 for arm in comparison.arms)
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
                *([_bootstrap(arm)] if has_seeds else []),
                *([f"{speed:,.0f}"] if has_time else []),
            ]
        )
    names = ["arm", "seeds", "parameters", "held-out loss", "over the seeds"]
    names += ["bootstrap"] if has_seeds else []
    remark = BOOTSTRAP if has_seeds else ""
    return Table("At the end", [*names, *(["tokens/s"] if has_time else [])], rows, remark)


def _bootstrap(arm: Arm) -> str:
    if len(arm.runs) < 2:
        return NONE
    low, high = arm.bootstrap_at_end
    if not math.isfinite(low):
        return "diverged"
    return f"{low:.3f} - {high:.3f}" if math.isfinite(high) else f"{low:.3f} or more"


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
    last = len(headers) - 1
    return Table("Arm against arm", headers, rows, _pair_remark(comparison, rows), (last,))


def _pair_remark(comparison: Comparison, rows: Sequence[Sequence[str]]) -> str:
    """Return what the lines below the numbers mean, if there are any."""
    sizes = confidences(comparison.pairs)
    by_seed = listed([f"{share:.1%} of {counted(number, 'pair')}" for number, share in sizes])
    is_judged = any("significant" in cell for row in rows for cell in row)
    remarks = [BY_SEED.format(by_seed) if sizes else "", SIGNIFICANT if is_judged else ""]
    return " ".join(filter(None, remarks))


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
    if (paired := comparison.paired_share(pair, axis)) is not None:
        return f"{text}\n{percentages(paired)}"
    return text + WITHIN * (comparison.verdict(pair, axis) == "within")


def percentages(interval: Interval) -> str:
    """Return an interval of shares as "88 - 95%"."""
    low, high = max(0.0, interval.low), interval.high
    if math.isfinite(high):
        return f"{100 * low:.0f} - {high:.0%}" if low else f"{high:.0%} or less"
    return f"{low:.0%} or more" if low else "unknown"


def differences(low: float, high: float) -> str:
    """Return an interval of differences as "-0.200 to +0.100"."""
    if math.isfinite(low):
        return f"{low:+.3f} to {high:+.3f}" if math.isfinite(high) else f"{low:+.3f} or more"
    return f"{high:+.3f} or less" if math.isfinite(high) else "unknown"


def _difference_at_end(comparison: Comparison, pair: Pair) -> str:
    difference = pair.difference_at_end
    if difference is None or not comparison.has_comparable_ends(pair):
        return NONE
    text = f"{difference:+.3f}"
    if (paired := pair.paired_difference_at_end) is not None:
        text += f"\n{differences(paired.low, paired.high)}"
    return f"{text}\n{pair.significance_at_end}"
