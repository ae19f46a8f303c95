"""An arm against the baseline: differences, and whether they are larger than those of seeds.

Runs of equal seed see the same samples in the same order. So where both arms have the same seeds,
runs of equal seed are compared, and the median over the seeds has the interval of the sign test,
which assumes nothing about the distribution. Other seeds are not tested.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from pretrain.reports.compare.runs import Arm, Run

CONFIDENCE = 0.95  # asked of an interval; a few pairs give less


@dataclass(frozen=True)
class Interval:
    """The median of one value per pair of runs, and an interval that covers the true median."""

    median: float | None  # of the values; None: infinite, or pairs without a known value decide it
    low: float  # lower end; -infinity where pairs without a known value decide it
    high: float  # upper end; infinity likewise
    num_pairs: int  # of runs
    confidence: float  # probability that such an interval covers the median of the distribution


@dataclass(frozen=True)
class Pair:
    """An arm and the one that it is compared with."""

    arm: Arm
    against: Arm

    @property
    def by_seed(self) -> list[tuple[Run, Run]]:
        """Return the runs of equal seed; none unless both arms have the same two seeds or more."""
        ours, others = (
            {run.settings["seed"]: run for run in arm.runs} for arm in (self.arm, self.against)
        )
        has_repeated_seeds = len(ours) < len(self.arm.runs) or len(others) < len(self.against.runs)
        if has_repeated_seeds or ours.keys() != others.keys() or len(ours) < 2:
            return []
        return [(run, others[seed]) for seed, run in ours.items()]

    @property
    def paired_difference_at_end(self) -> Interval | None:
        """Return the loss at the end less that of `against` by seed; None: seeds are not paired."""
        # Infinity less infinity, two runs that diverged, is NaN: not known.
        ends = [run.final_loss - other.final_loss for run, other in self.by_seed]
        return median_interval(ends) if ends else None

    @property
    def difference_at_end(self) -> float | None:
        """Return the loss at the end less that of `against`: the median; None: it diverged."""
        if (paired := self.paired_difference_at_end) is not None:
            return paired.median
        ours, others = (arm.median(lambda run: run.final_loss) for arm in (self.arm, self.against))
        return None if ours is None or others is None else ours - others

    @property
    def significance_at_end(self) -> str:
        """Return "significant", at `CONFIDENCE` by seeds, or "not significant", or why neither."""
        for arm in (self.arm, self.against):
            if len({run.settings["seed"] for run in arm.runs}) < len(arm.runs):
                return "a seed twice"
        if len(self.arm.runs) == len(self.against.runs) == 1:
            return "one seed"
        if (paired := self.paired_difference_at_end) is None:
            return "other seeds"
        if paired.confidence < CONFIDENCE:
            return "too few seeds to test"
        return "not significant" if paired.low <= 0 <= paired.high else "significant"


def median_interval(values: Sequence[float]) -> Interval:
    """Return the median and its interval between two of the values, by the sign test.

    Each value is above the median of the distribution with probability 1/2. So the k-th lowest and
    the k-th highest of n enclose it unless fewer than k lie on one side, with probability
    1 - 2 P(B < k), where B is binomial of n and 1/2. The largest k of at least `CONFIDENCE` is
    taken, else 1: 1 - 2^(1 - n). W. R. Thompson, Annals of Mathematical Statistics 7, 1936.

    Args:
        values: one per pair, two or more; NaN where it is not known, which can be any value.
    """
    from scipy.stats import binom  # takes a second

    n = len(values)
    rank = max(1, int(binom.ppf((1 - CONFIDENCE) / 2, n, 0.5)))
    lows = sorted(-math.inf if math.isnan(value) else value for value in values)
    highs = sorted(math.inf if math.isnan(value) else value for value in values)
    medians = {statistics.median(lows), statistics.median(highs)}
    (median,) = medians if len(medians) == 1 else (math.nan,)
    return Interval(
        median if math.isfinite(median) else None,
        lows[rank - 1],
        highs[n - rank],
        n,
        float(1 - 2 * binom.cdf(rank - 1, n, 0.5)),
    )


def ratio(ours: float | None, others: float | None) -> float:
    """Return a ratio of amounts; NaN: not known, because neither was reached or the other is 0.

    -Infinity: only the other was not reached. It is below any ratio, and no median averages it.
    """
    if others is None:
        return math.nan if ours is None else -math.inf
    if ours is None:
        return math.inf
    return float(ours / others) if others else math.nan
