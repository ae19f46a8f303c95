"""The tables of a comparison: a row per arm, every run, settings that differ, and launches."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pretrain.config.run_files import PLATEAU_MARGIN
from pretrain.reports.compare.caveats import differing, values_of, weighted_by_seconds
from pretrain.reports.compare.convergence import Comparison
from pretrain.reports.compare.pairs import CONFIDENCE, Interval, Pair
from pretrain.reports.compare.runs import Arm, crossing, differing_settings, is_below_from_the_start
from pretrain.reports.report import Report
from pretrain.reports.table import Table
from pretrain.reports.words import amount, counted

NONE = "-"  # not known, or not recorded by an earlier version


def report_of(comparison: Comparison) -> Report:
    """Return what `tupelo compare` shows."""
    arms = comparison.arms
    runs = counted(sum(len(arm.runs) for arm in arms), "run")
    lead = f"{runs} of {counted(len(arms), 'arm')}; target {comparison.target:.3f} nats"
    if comparison.entropy is not None:
        below = comparison.entropy - comparison.target
        where = f"{abs(below):.2f} {'below' if below > 0 else 'above'}"
        lead += f", {where} the unigram entropy {comparison.entropy:.3f}"
    numbers = [arm_numbers(comparison, arm) for arm in arms]
    return Report(lead, result_table(comparison), comparison.notes, numbers)


def arm_numbers(comparison: Comparison, arm: Arm) -> dict[str, Any]:
    """Return the known numbers of an arm with all their digits; None: never reached."""
    losses = arm.values(lambda run: run.final_loss)
    baseline = comparison.arms[0]
    found: dict[str, Any] = {
        "arm": arm.name,
        "seeds": len(arm.runs),
        "loss": arm.median(lambda run: run.final_loss),
        "loss_low": min(losses) if len(losses) > 1 else None,
        "loss_high": max(losses) if len(losses) > 1 else None,
        "target": comparison.target,
        "entropy": comparison.entropy,
        "step_below_entropy": comparison.left_plateau(arm, "step"),
        **{f"{axis}_to_target": comparison.reached(arm, axis) for axis in comparison.axes},
        "to_target_is_upper_bound": comparison.is_bound(arm),
    }
    if arm is baseline:
        return found
    pair = Pair(arm, baseline)
    if comparison.has_comparable_ends(pair):
        found |= {"difference": pair.difference_at_end, "significance": pair.significance_at_end}
        found |= _ends("difference", pair.paired_difference_at_end)
    for axis in comparison.axes:
        if not comparison.is_bound(baseline):
            found[f"{axis}_share"] = comparison.share(pair, axis)
            found |= _ends(f"{axis}_share", comparison.paired_share(pair, axis))
    return found


def _ends(name: str, interval: Interval | None) -> dict[str, float]:
    ends = {} if interval is None else vars(interval)
    return {f"{name}_{end}": ends[end] for end in ("low", "high", "confidence") if ends}


def result_table(comparison: Comparison) -> Table:
    """Return a row per arm: the loss at the end, and what it took to reach the target."""
    arms = comparison.arms
    found = [pair.paired_difference_at_end for pair in comparison.pairs]
    sizes = sorted({(one.num_pairs, one.confidence) for one in found if one is not None})
    confidences = ", ".join(f"{share:.1%}, {counted(number, 'pair')}" for number, share in sizes)
    remarks = []
    if comparison.entropy is not None:
        remarks.append(f"Below entropy: {PLATEAU_MARGIN:g} nats below the unigram entropy.")
    if sizes:
        remarks.append(f"Intervals: sign test (confidence {confidences}).")
    return Table(
        f"{', '.join(arm.name for arm in arms[1:])} against {arms[0].name}"
        if len(arms) > 1
        else arms[0].name,
        [_row(comparison, arm) for arm in arms],
        " ".join(remarks),
    )


def _row(comparison: Comparison, arm: Arm) -> dict[str, str]:
    found = arm_numbers(comparison, arm)
    difference = NONE
    if found.get("difference") is not None:
        interval = _interval(found, "difference", "{:+.3f}")
        difference = f"{found['difference']:+.3f}{interval}\n{found['significance']}"
    row = {
        "arm": arm.name,
        "seeds": str(found["seeds"]),
        "loss at end": _loss(found["loss"]) + _interval(found, "loss", "{:.3f}"),
        "difference": difference,
    }
    if comparison.entropy is not None:
        left, end = found["step_below_entropy"], comparison.plateau_end
        bound = "<= " if left is not None and comparison.is_bound(arm, end) else ""
        row["steps below entropy"] = bound + amount(left, "step")
    bound = "<= " if comparison.is_bound(arm) and found["step_to_target"] is not None else ""
    for axis, name in comparison.axes.items():
        text, share = bound + amount(found[f"{axis}_to_target"], axis), found.get(f"{axis}_share")
        # Steps of equally many tokens have one share.
        if share is not None and (
            axis != "tokens" or not math.isclose(share, found["step_share"] or 0.0, rel_tol=1e-3)
        ):
            text += f"\n{bound}{share:.0%}" + _interval(found, f"{axis}_share", "{:.0%}")
        row[f"{name} to target"] = text
    return row


def _interval(numbers: Mapping[str, Any], name: str, form: str) -> str:
    """Return an interval that is known, and its seeds if too few for `CONFIDENCE`, in lines."""
    low, high = (numbers.get(f"{name}_{end}") for end in ("low", "high"))
    known = [form.format(end) for end in (low, high) if end is not None and math.isfinite(end)]
    if not known:
        return ""
    text = " to ".join(known)
    if len(known) < 2:
        text += " or more" if high == math.inf else " or less"
    if numbers.get(f"{name}_confidence", 1.0) < CONFIDENCE:  # a range has none
        text += f", {counted(numbers['seeds'], 'seed')}"
    return f"\n{text}"


def run_table(comparison: Comparison) -> Table:
    """Return a row per run: size, losses, steps to the target, speed, memory, waiting.

    Tokens/s are all tokens over all seconds of training. Shares are weighted by the training
    seconds of their lines of metrics; memory is the maximum.
    """
    rows = []
    for run in (run for arm in comparison.arms for run in arm.runs):
        target = comparison.target
        bound = "<= " if is_below_from_the_start(run, target) else ""
        memory = max((row.get("peak_memory_bytes", 0) for row in run.metrics), default=0)
        shares = {
            "utilisation": weighted_by_seconds(run, "model_flops_utilisation"),
            "waiting": weighted_by_seconds(run, "processor_wait_share"),
        }
        rows.append(
            {
                "run": str(run.folder),
                "seed": str(run.settings["seed"]),
                "parameters": amount(run.result.parameters, "") if run.result else NONE,
                "loss at end": _loss(run.final_loss),
                "steps to target": bound + amount(crossing(run, target, "step"), "step"),
                "tokens/s": f"{run.tokens_per_second:,.0f}",
                "memory": f"{amount(memory, '')}B" if memory else NONE,
                **{name: NONE if one is None else f"{one:.1%}" for name, one in shares.items()},
            }
        )
    return Table("Every run", rows)


def settings_table(arms: Sequence[Arm]) -> Table:
    """Return a row per setting, or property of launches, that differs; a column for each arm."""
    names = [arm.name for arm in arms]
    found = {
        **{name: [*map(str, values)] for name, values in differing_settings(arms).items()},
        **{
            name: [", ".join(values_of(name, arm.launches)) for arm in arms]
            for name in differing([launch for arm in arms for launch in arm.launches])
        },
    }
    rows = [{"": name, **dict(zip(names, values, strict=True))} for name, values in found.items()]
    return Table("All that differs", rows, text=names)


def _loss(loss: float | None) -> str:
    return f"{loss:.3f}" if loss is not None and math.isfinite(loss) else "diverged"
