"""Differences of two arms, seed by seed, with the 95 % interval of Student's t.

Runs of Tupelo of equal seed see the same samples in the same order; those of transformers have an
order of their own. Of a handful of pairs no interval without an assumption reaches 95 % (the sign
test of five: 94 %): this one assumes that the differences are normally distributed.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from scipy import stats

CONFIDENCE = 0.95


class PairedMean(NamedTuple):
    """The mean of a value over paired seeds."""

    mean: float
    low: float  # end of the interval; -infinity with one pair
    high: float  # the other end; infinity with one pair
    num_pairs: int
    p_value: float  # two-sided, that the true mean is 0; 1 with one pair


def paired_mean(ours: Mapping[int, float], theirs: Mapping[int, float]) -> PairedMean | None:
    """Return the mean of ours less theirs over the seeds that both have; None: there is none.

    An infinite value on one side makes the mean infinite, on both sides unknown: None.
    """
    differences = [ours[seed] - theirs[seed] for seed in ours.keys() & theirs.keys()]
    if not differences or math.isnan(sum(differences)):  # inf - inf is not a number
        return None
    mean, n = math.fsum(differences) / len(differences), len(differences)
    if n < 2 or math.isinf(mean):
        return PairedMean(mean, -math.inf, math.inf, n, 1.0)
    test = stats.ttest_1samp(differences, 0)
    low, high = test.confidence_interval(CONFIDENCE)
    # Where no seed differs there is no variance, and no p.
    p_value = 1.0 if math.isnan(test.pvalue) else float(test.pvalue)
    return PairedMean(mean, float(low), float(high), n, p_value)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values that are corrected for being several (S. Holm, 1979)."""
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, (p_value, index) in enumerate(sorted((p, i) for i, p in enumerate(p_values))):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_value))
        corrected[index] = largest
    return corrected
