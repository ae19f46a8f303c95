"""The result of a comparison in words."""

import math
from collections.abc import Sequence

from pretrain.compare.convergence import Comparison, Pair, Verdict
from pretrain.compare.runs import Arm, crossing
from pretrain.reports.words import counted, listed

WITHIN = "within the range of seeds: not a difference"
ONE_SEED_EACH = " (one seed each: whether this is a difference is unknown)"
REMARKS: dict[Verdict, str] = {
    "beyond": "",
    "within": f" ({WITHIN})",
    "unknown": "",  # at the end of the sentence
}


def headline(comparison: Comparison) -> list[str]:
    """Return what was compared and the result, as sentences."""
    arms = comparison.arms
    runs = [run for arm in arms for run in arm.runs]
    alone = "; they differ in the seed only" if len(arms) == 1 else ""
    sentences = [
        f"{counted(len(runs), 'run')} of {counted(len(arms), 'arm')}, compared at a held-out loss "
        f"of {comparison.target:.3f} nats{alone}.",
        _end(arms[0], " (the baseline)" if len(arms) > 1 else ""),
        *(_on_pair(comparison, pair) for pair in comparison.pairs),
    ]
    if comparison.reasons_against_seconds:
        sentences.append("Time is not compared; the first note says why.")
    return sentences


def _end(arm: Arm, role: str) -> str:
    steps = sorted({run.evaluations[-1]["step"] for run in arm.runs})
    after = " to ".join(f"{step:,}" for step in dict.fromkeys((steps[0], steps[-1])))
    finished = [run.result is not None for run in arm.runs]
    ends = "ends" if all(finished) else "is not finished, and stands"
    return f"{arm.name}{role} {ends} at {_losses_in_words(arm)} after {after} steps."


def _losses_in_words(arm: Arm) -> str:
    """Return the held-out loss at the end with its range over the seeds."""
    losses = sorted(loss for run in arm.runs if math.isfinite(loss := run.final_loss))
    diverged = len(arm.runs) - len(losses)
    median = arm.median(lambda run: run.final_loss)
    text = "no finite held-out loss" if median is None else f"{median:.3f} nats"
    if len(losses) > 1:
        text += f" ({losses[0]:.3f} - {losses[-1]:.3f} over {counted(len(losses), 'seed')})"
    return text + (f", {diverged} of {len(arm.runs)} diverged," if diverged else "")


def _on_pair(comparison: Comparison, pair: Pair) -> str:
    parts = [_on_the_way(comparison, pair), _on_the_end(comparison, pair)]
    is_single = len(pair.arm.runs) == len(pair.against.runs) == 1
    has_numbers = comparison.shares(pair) or comparison.has_comparable_ends(pair)
    remark = ONE_SEED_EACH if is_single and has_numbers else ""
    return f"{pair.arm.name} against {pair.against.name}: {'; '.join(parts)}{remark}."


def _on_the_way(comparison: Comparison, pair: Pair) -> str:
    """Return the shares of steps, tokens, FLOPs and time at which the target was reached."""
    target = f"{comparison.target:.3f} nats"
    missing = [arm for arm in (pair.arm, pair.against) if comparison.reached(arm, "step") is None]
    if missing:
        return _missed(comparison, missing)
    if comparison.is_bound(pair.against):
        return f"{pair.against.name} was below {target} at its first evaluation: no share is known"
    groups: dict[Verdict, list[str]] = {}
    for axis, share in comparison.shares(pair).items():
        words = f"{share:.0%} of the {comparison.axes[axis]}"
        groups.setdefault(comparison.verdict(pair, axis), []).append(words)
    most = "at most " if comparison.is_bound(pair.arm) else ""
    found = [listed(words) + REMARKS[verdict] for verdict, words in groups.items()]
    return f"{target} after {most}{', and '.join(found)}"


def _missed(comparison: Comparison, arms: Sequence[Arm]) -> str:
    if len(arms) == 2:
        return f"neither reached {comparison.target:.3f} nats"
    arm = arms[0]
    reached = sum(crossing(run, comparison.target, "step") is not None for run in arm.runs)
    some = f" ({reached} of its {counted(len(arm.runs), 'run')} did)" if reached else ""
    return f"{arm.name} did not reach {comparison.target:.3f} nats{some}"


def _on_the_end(comparison: Comparison, pair: Pair) -> str:
    """Return the held-out losses at the end, where both were trained on equally much."""
    ours, others = (arm.median(lambda run: run.final_loss) for arm in (pair.arm, pair.against))
    if not comparison.has_comparable_ends(pair):
        return "the ends are not compared: the budgets differ, or a run is not finished"
    if ours is None or others is None:
        who = [arm.name for arm, loss in ((pair.arm, ours), (pair.against, others)) if loss is None]
        return f"{listed(who)} diverged before the end"
    return f"at the end {ours:.3f} against {others:.3f} nats" + REMARKS[pair.verdict_at_end]
