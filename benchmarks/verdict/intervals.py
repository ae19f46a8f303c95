"""Differences of two arms, seed by seed, with the 95 % interval of Student's t.

Runs of Tupelo of equal seed see the same samples in the same order, and begin with the same words;
those of transformers have an order of their own. Of a handful of pairs no interval without an
assumption reaches 95 % (the sign test of five: 94 %): this one assumes that the differences are
normally distributed.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy import stats

CONFIDENCE = 0.95


@dataclass(frozen=True)
class PairedMean:
    """The mean of a value over paired seeds.

    Attributes:
        mean: of the values.
        low: end of the interval; -infinity with one pair.
        high: the other end; infinity with one pair.
        num_pairs: of runs.
        p_value: two-sided, that the true mean is 0; 1 with one pair.
    """

    mean: float
    low: float
    high: float
    num_pairs: int
    p_value: float


def paired_mean(ours: Mapping[int, float], theirs: Mapping[int, float]) -> PairedMean | None:
    """Return the mean of ours less theirs over the seeds that both have; None: there is none.

    An infinite value on one side makes the mean infinite, on both sides unknown: None.
    """
    differences = [ours[seed] - theirs[seed] for seed in ours.keys() & theirs.keys()]
    if not differences or math.isnan(sum(differences)):  # inf - inf is not a number
        return None
    mean, n = statistics.fmean(differences), len(differences)
    if n < 2 or math.isinf(mean):
        return PairedMean(mean, -math.inf, math.inf, n, 1.0)
    error = statistics.stdev(differences) / math.sqrt(n)
    reach = float(stats.t.ppf((1 + CONFIDENCE) / 2, n - 1)) * error
    ratio = math.inf if error == 0 else abs(mean) / error
    p_value = 2 * float(stats.t.sf(ratio, n - 1)) if mean else 1.0
    return PairedMean(mean, mean - reach, mean + reach, n, p_value)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values that are corrected for being several (S. Holm, 1979)."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = largest
    return corrected
