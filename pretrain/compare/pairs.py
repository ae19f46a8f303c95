"""Two arms against each other: by their settings, and by more than their seeds or not.

Runs of equal seed see the same samples in the same order. So where both arms have the same seeds,
runs of equal seed are compared, and the median over the seeds has the interval of the sign test,
which assumes nothing about the distribution.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from pretrain.compare.bootstrap import bootstrap_interval
from pretrain.compare.runs import Arm, Run, differing_settings

CONFIDENCE = 0.95  # asked of an interval; a few pairs give less

# "within": the interval over paired seeds contains no difference, or the ranges of other seeds
# overlap; "beyond": it does not, or they do not; "unknown": one seed each.
Verdict = Literal["within", "beyond", "unknown"]


@dataclass(frozen=True)
class Interval:
    """The median of one value per pair of runs, and an interval that covers the true median.

    Attributes:
        median: of the values; None: infinite, or pairs without a known value decide it.
        low: lower end; -infinity where pairs without a known value decide it.
        high: upper end; infinity likewise.
        num_pairs: of runs.
        confidence: probability that such an interval covers the median of the distribution.
    """

    median: float | None
    low: float
    high: float
    num_pairs: int
    confidence: float

    def verdict(self, none: float) -> Verdict:
        """Return whether the interval excludes `none`, the value of no difference."""
        return "within" if self.low <= none <= self.high else "beyond"


@dataclass(frozen=True)
class Pair:
    """An arm and the one that it is compared with."""

    arm: Arm
    against: Arm

    @property
    def differing(self) -> dict[str, list[object]]:
        """Return the settings that differ, with the value of `against` and that of `arm`."""
        return differing_settings([self.against, self.arm])

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
        found = self._differences_at_end
        return median_interval(found) if found else None

    @property
    def bootstrap_at_end(self) -> tuple[float, float] | None:
        """Return its interval by the bootstrap; None: seeds are not paired, or one is not known."""
        found = self._differences_at_end
        is_known = not any(map(math.isnan, found)) and not {-math.inf, math.inf} <= {*found}
        return bootstrap_interval(found) if found and is_known else None

    @property
    def _differences_at_end(self) -> list[float]:
        ends = [(_end(run), _end(other)) for run, other in self.by_seed]
        # Infinity less infinity, two runs that diverged, is NaN: not known.
        return [ours - others for ours, others in ends]

    @property
    def difference_at_end(self) -> float | None:
        """Return the loss at the end less that of `against`: the median; None: it diverged."""
        if (paired := self.paired_difference_at_end) is not None:
            return paired.median
        ours, others = (arm.median(lambda run: run.final_loss) for arm in (self.arm, self.against))
        return None if ours is None or others is None else ours - others

    @property
    def verdict_at_end(self) -> Verdict:
        """Return whether the losses at the end differ by more than the seeds do."""
        if (paired := self.paired_difference_at_end) is not None:
            return paired.verdict(0.0)
        return verdict(
            *(arm.values(lambda run: run.final_loss) for arm in (self.arm, self.against))
        )

    @property
    def significance_at_end(self) -> str:
        """Return "significant", at `CONFIDENCE` by seeds, "not significant", or "one seed"."""
        found, paired = self.verdict_at_end, self.paired_difference_at_end
        if found == "unknown":
            return "one seed"
        ranges = confidence_of_ranges(len(self.arm.runs), len(self.against.runs))
        is_sure = (paired.confidence if paired else ranges) >= CONFIDENCE
        return "significant" if found == "beyond" and is_sure else "not significant"

    def paired_ratio(self, value: Callable[[Run], float | None]) -> Interval | None:
        """Return a value over that of `against` by seed; None: seeds are not paired.

        Args:
            value: an amount of a run; None ("never") counts as more than any.
        """
        if not self.by_seed:
            return None
        return median_interval([_ratio(value(run), value(other)) for run, other in self.by_seed])


def median_interval(values: Sequence[float]) -> Interval:
    """Return the median and its interval between two of the values, by the sign test.

    Each value is above the median of the distribution with probability 1/2. So the k-th lowest and
    the k-th highest of n enclose it unless fewer than k lie on one side, with probability
    1 - 2 P(B < k), where B is binomial of n and 1/2. The largest k of at least `CONFIDENCE` is
    taken, else 1, which gives 1 - 2^(1 - n). Source: W. R. Thompson, Annals of Mathematical
    Statistics 7, 1936.

    Args:
        values: one per pair, two or more; NaN where it is not known, which can be any value.
    """
    lows = sorted(-math.inf if math.isnan(value) else value for value in values)
    highs = sorted(math.inf if math.isnan(value) else value for value in values)
    n = len(values)
    ranks = range(2, n // 2 + 1)
    rank = max((k for k in ranks if _coverage(n, k) >= CONFIDENCE), default=1)
    medians = {statistics.median(lows), statistics.median(highs)}
    (median,) = medians if len(medians) == 1 else (math.nan,)
    return Interval(
        median if math.isfinite(median) else None,
        lows[rank - 1],
        highs[n - rank],
        n,
        _coverage(n, rank),
    )


def confidences(pairs: Sequence[Pair]) -> list[tuple[int, float]]:
    """Return the number of runs and the confidence of the intervals of these pairs, each once."""
    intervals = [pair.paired_difference_at_end for pair in pairs]
    return sorted({(one.num_pairs, one.confidence) for one in intervals if one is not None})


def verdict(values: Sequence[float], others: Sequence[float]) -> Verdict:
    """Return whether two arms differ by more than the seeds of each, given a value per seed."""
    if len(values) == len(others) == 1:
        return "unknown"
    overlap = min(values) <= max(others) and min(others) <= max(values)
    return "within" if overlap else "beyond"


def confidence_of_ranges(num_values: int, num_others: int) -> float:
    """Return the probability that two ranges overlap where there is no difference.

    Any choice of the values of one arm among all is then equally probable; in two they do not.
    """
    return 1 - 2 / math.comb(num_values + num_others, num_values)


def _coverage(n: int, rank: int) -> float:
    outside: int = 2 * sum(math.comb(n, below) for below in range(rank))
    return 1 - outside / (1 << n)


def _end(run: Run) -> float:
    return math.inf if math.isnan(run.final_loss) else run.final_loss


def _ratio(ours: float | None, others: float | None) -> float:
    """Return a ratio of amounts; NaN: not known, because neither was reached or the other is 0.

    -Infinity: only the other was not reached. It is below any ratio, and no median averages it.
    """
    if others is None:
        return math.nan if ours is None else -math.inf
    if ours is None:
        return math.inf
    return float(ours / others) if others else math.nan
