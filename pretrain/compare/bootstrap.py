"""The interval of a median by the bootstrap: medians of seeds that are drawn again from the seeds.

Percentile interval (B. Efron, Annals of Statistics 7, 1979). Of few seeds it is their range or
nearly so, and covers the median of the distribution less often than it says: the interval of the
sign test (pairs.py) says how often.
"""

import itertools
import math
import random
import statistics
from collections.abc import Iterable, Sequence

SHARE = 0.95  # of the resampled medians, in the middle

MOST_ENUMERATED = 5  # values, whose n^n resamples are all taken: 3,125
RESAMPLES = 10_000  # of more values
SEED = 0


def bootstrap_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the interval that holds the middle `SHARE` of the medians of resamples.

    Args:
        values: two or more; infinity is one, NaN is not.
    """
    n = len(values)
    resamples: Iterable[Sequence[float]]
    if n <= MOST_ENUMERATED:
        resamples = itertools.product(values, repeat=n)
    else:
        generator = random.Random(SEED)
        resamples = (generator.choices(values, k=n) for _ in range(RESAMPLES))
    medians = sorted(statistics.median(resample) for resample in resamples)
    tail = (1 - SHARE) / 2
    # The smallest median with at least the share `tail` at or below it, and the mirror image.
    rank = math.ceil(round(tail * len(medians), 6))
    return medians[rank - 1], medians[len(medians) - rank]
