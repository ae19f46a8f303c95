"""Whether each arm ends lower or higher than the baseline by more than the noise of the seeds."""

import math

from pretrain.compare.convergence import Comparison
from pretrain.compare.pairs import CONFIDENCE, Pair, confidence_of_ranges
from pretrain.compare.tables import differences
from pretrain.reports.words import counted

LEAST_CONFIDENCE = 0.5  # below it nothing is said


def noise(comparison: Comparison) -> list[str]:
    """Return a sentence for each arm but the baseline."""
    baseline = comparison.arms[0]
    return [_sentence(comparison, Pair(arm, baseline)) for arm in comparison.arms[1:]]


def _sentence(comparison: Comparison, pair: Pair) -> str:
    names = f"{pair.arm.name} against {pair.against.name}, at the end"
    if not comparison.has_comparable_ends(pair):
        return f"{names}: not compared, since they were not trained on equally much."
    difference = pair.difference_at_end
    if difference is None or not math.isfinite(difference):
        return f"{names}: not known, since runs diverged."
    size = f"{difference:+.3f} nats"
    verdict, paired = pair.verdict_at_end, pair.paired_difference_at_end
    if verdict == "unknown":
        return f"{names}: {size}; whether this is more than noise is not known from one seed each."
    if paired is None:
        if verdict == "within":
            return f"{names}: {size}, no more than the noise: the ranges of the seeds overlap."
        confidence = confidence_of_ranges(len(pair.arm.runs), len(pair.against.runs))
        if confidence < LEAST_CONFIDENCE:
            return (
                f"{names}: {size}; whether this is more than noise is not known from so few seeds."
            )
        if confidence >= CONFIDENCE:
            return f"{names}: {size}, more than the noise: the ranges of the seeds do not overlap."
        return (
            f"{names}: {size}, and the ranges of the seeds do not overlap, which has a confidence "
            f"of {confidence:.0%}: more than noise, if more seeds agree."
        )
    low, high = pair.bootstrap_at_end or (paired.low, paired.high)
    seeds = counted(paired.num_pairs, "seed")
    size += f" (bootstrap over {seeds}: {differences(low, high)})"
    if verdict == "within":
        return f"{names}: {size}, no more than the noise of the seeds."
    if paired.confidence >= CONFIDENCE:
        return f"{names}: {size}, more than the noise of the seeds."
    return (
        f"{names}: {size}, the same way with each seed, which has a confidence of "
        f"{paired.confidence:.0%}: more than noise, if more seeds agree."
    )
