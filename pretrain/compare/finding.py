"""What a comparison found, in two sentences: results between neighbours, and their limits."""

from collections.abc import Sequence

from pretrain.compare.convergence import Comparison
from pretrain.compare.headline import end_of
from pretrain.compare.pairs import Pair, Verdict, confidences
from pretrain.compare.runs import Arm, crossing
from pretrain.compare.tables import differences, percentages
from pretrain.reports.words import amount, counted, listed

MOST_PAIRS = 3  # in a sentence that can be read; the table has all
WITHIN = "within the range of seeds: no difference"


def finding(comparison: Comparison) -> list[str]:
    """Return two plain sentences: what was found between the arms that matter, and its limits."""
    if len(comparison.arms) == 1:
        (arm,) = comparison.arms
        return [
            f"{arm.name} {end_of(arm)}.",
            "But that is no comparison: it shows what the seed alone changes.",
        ]
    pairs = _pairs_that_matter(comparison)
    clauses = [_on_pair(comparison, pair) for pair in pairs]
    found = "; ".join(clauses or _plateaus_left(comparison))
    limits = _limits(comparison, pairs)
    return [f"{found}.", *([f"But {_enumerated(limits)}."] if limits else [])]


def _pairs_that_matter(comparison: Comparison) -> list[Pair]:
    """Return each arm with its nearest neighbour, or else with the baseline.

    Arms that never left the plateau are left out. Where there are too many pairs, those with the
    baseline are left out first, and then the last ones.
    """
    stayed = [arm for arm in comparison.arms if comparison.never_left_plateau(arm)]
    # Of the pairs of an arm, the one with its nearest neighbour comes last.
    nearest = {
        pair.arm.name: pair
        for pair in comparison.pairs
        if pair.arm not in stayed and pair.against not in stayed
    }
    by_weight = sorted(nearest.values(), key=lambda pair: pair.against is comparison.arms[0])
    chosen = {pair.arm.name for pair in by_weight[:MOST_PAIRS]}
    return [pair for name, pair in nearest.items() if name in chosen]


def _on_pair(comparison: Comparison, pair: Pair) -> str:
    return f"{_on_the_way(comparison, pair)}{_on_the_end(comparison, pair)}"


def _on_the_way(comparison: Comparison, pair: Pair) -> str:
    """Return with what shares of steps, tokens, FLOPs and time the target was reached."""
    arm, against, target = pair.arm, pair.against, f"{comparison.target:.3f} nats"
    missing = [one for one in (arm, against) if comparison.reached(one, "step") is None]
    if len(missing) == 2:
        return f"{against.name} and {arm.name} did not reach {target}"
    if missing:
        what = "did not reach" if missing == [arm] else "reached"
        other = f"which {against.name} {'did' if missing == [arm] else 'did not'}"
        some = _some_runs(comparison, missing[0])
        return f"{arm.name} {what} {target}, {other}{some}"
    shares = comparison.shares(pair)
    if comparison.is_bound(against) or not shares:
        early = f"{against.name} before its first evaluation"
        why = early if comparison.is_bound(against) else "how much sooner is not known"
        return f"{arm.name} and {against.name} reached {target}, {why}"
    groups: dict[tuple[str, str], list[str]] = {}
    for axis, share in shares.items():
        group = (f"{share:.0%}", _remark_on_the_way(comparison, pair, axis))
        groups.setdefault(group, []).append(comparison.axes[axis])
    most = "at most " if comparison.is_bound(arm) else ""
    found = [f"{share} of the {listed(names)}{why}" for (share, why), names in groups.items()]
    return f"{arm.name} reached {target} with {most}{listed(found)} of {against.name}"


def _some_runs(comparison: Comparison, arm: Arm) -> str:
    reached = sum(crossing(run, comparison.target, "step") is not None for run in arm.runs)
    return f" ({reached} of {counted(len(arm.runs), 'run')} of {arm.name} did)" if reached else ""


def _remark_on_the_way(comparison: Comparison, pair: Pair, axis: str) -> str:
    paired = comparison.paired_share(pair, axis)
    return _remark(comparison.verdict(pair, axis), percentages(paired) if paired else "")


def _remark(verdict: Verdict, interval: str) -> str:
    if interval:
        return f" ({interval}{': no difference' if verdict == 'within' else ''})"
    return f" ({WITHIN})" if verdict == "within" else ""


def _on_the_end(comparison: Comparison, pair: Pair) -> str:
    """Return how much lower or higher it ended, where both were trained on equally much."""
    if not comparison.has_comparable_ends(pair):
        return ""
    difference, paired = pair.difference_at_end, pair.paired_difference_at_end
    if difference is None:
        lost = [
            arm.name
            for arm in (pair.arm, pair.against)
            if arm.median(lambda run: run.final_loss) is None
        ]
        return f" ({listed(lost)} diverged before the end)" if lost else ""
    remark = _remark(pair.verdict_at_end, differences(paired.low, paired.high) if paired else "")
    size = f"{abs(difference):.3f}"
    reached = [comparison.reached(arm, "step") for arm in (pair.arm, pair.against)]
    who = f"{pair.arm.name} " if reached == [None, None] else ""  # both are named before
    if float(size) == 0:
        return f", and both ended at the same loss{remark}"
    return f", and {who}ended {size} nats {'lower' if difference < 0 else 'higher'}{remark}"


def _plateaus_left(comparison: Comparison) -> list[str]:
    """Return the finding where fewer than two arms left the plateau."""
    left = [arm for arm in comparison.arms if not comparison.never_left_plateau(arm)]
    if not left:
        return [f"No arm left the plateau of word frequencies{_within(comparison.arms)}"]
    (arm,) = left
    steps = amount(comparison.left_plateau(arm, "step"), "step")
    only = f"Only {arm.name} left the plateau of word frequencies, after {steps} steps"
    return [f"{only}, and {end_of(arm)}"]


def _limits(comparison: Comparison, pairs: Sequence[Pair]) -> list[str]:
    """Return what limits the result, a clause each, the most severe first."""
    arms = comparison.arms
    runs = [run for arm in arms for run in arm.runs]
    limits = []
    if comparison.has_target_near_plateau and pairs:
        near = "so near the plateau of word frequencies"
        limits.append(f"the target is {near} that it shows little else")
    stayed = [arm for arm in arms if comparison.never_left_plateau(arm)]
    if stayed and pairs:  # else it is the finding
        who = listed([arm.name for arm in stayed])
        limits.append(f"{who} never left the plateau of word frequencies{_within(stayed)}")
    diverged = sum(run.diverged for run in runs)
    if diverged:
        limits.append(f"{counted(diverged, 'run')} diverged")
    unfinished = [arm.name for arm in arms if any(run.is_unfinished for run in arm.runs)]
    if unfinished:
        limits.append(f"{listed(unfinished)} {_are(unfinished)} not finished")
    if any(not comparison.has_comparable_ends(pair) for pair in pairs):
        limits.append("ends after unequal training are not compared")
    limits += _seeds(arms, pairs)
    if comparison.reasons_against_seconds:
        limits.append("time is not comparable")
    return limits if comparison.is_tuned else [*limits, "how well each arm is tuned is not known"]


def _within(arms: Sequence[Arm]) -> str:
    steps = {run.evaluations[-1]["step"] for arm in arms for run in arm.runs}
    return f" within {max(steps):,} steps" if len(steps) == 1 else " within the steps of the run"


def _seeds(arms: Sequence[Arm], pairs: Sequence[Pair]) -> list[str]:
    """Return what is not known for lack of seeds, and how sure the intervals are."""
    single = [arm.name for arm in arms if len(arm.runs) == 1]
    if len(single) == len(arms):
        return ["with one seed each any difference may be chance"]
    return [
        *([f"{listed(single)} {_has(single)} one seed only"] if single else []),
        *(
            f"an interval from {number} seeds has a confidence of {p:.0%}"
            for number, p in confidences(pairs)
        ),
    ]


def _enumerated(clauses: Sequence[str]) -> str:
    """Return "a, b, and c": with the comma, since a clause may hold an "and"."""
    if len(clauses) < 2:
        return "".join(clauses)
    return f"{', '.join(clauses[:-1])}, and {clauses[-1]}"


def _are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _has(names: Sequence[str]) -> str:
    return "has" if len(names) == 1 else "have"
