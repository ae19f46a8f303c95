"""The pattern of a head over positions, by a rule on softmax of its positional correlations.

TUPE Sec. 4.4 finds five patterns in the heads of TUPE-A, by eye. The rule here names them by
numbers. Let w_ij = softmax over j of v_ij, over words only: row and column of [CLS] are left out.
Averages are over all words i:

    before  mean of the sum of w_ij over j < i      after  the same over j > i
    near    mean of the sum of w_ij over |j - i| <= r, r = n / 16 for n words, at least 1

    previous            before is at least 3/4 of before + after
    next                after is at least 3/4 of before + after
    local               neither, and near is at least twice what equal weights would give
    global, not local   neither, and near is at most half of what equal weights would give
    broad               none of these

The thresholds are ours: the paper gives none.
"""

from typing import NamedTuple

import numpy
from numpy.typing import NDArray

ONE_SIDED = 0.75
NEAR_TIMES = 2.0
WORDS_PER_RADIUS = 16
RULE = (
    "Rule, on w = softmax(v) over words, without [CLS]: previous (next) if at least 3/4 of the "
    "weight off the diagonal is before (after) the query; else local if at least twice, and "
    "global-not-local if at most half of what equal weights would give lies within {radius} "
    "positions of the query; else broad."
)


class HeadPattern(NamedTuple):
    """The weights of a head over positions, as shares of 1, and the name that follows."""

    name: str
    before: float
    same: float  # on the query's own position
    after: float
    near: float
    near_times: float  # near, in units of what equal weights would give
    radius: int  # positions


def softmax(scores: NDArray[numpy.float64]) -> NDArray[numpy.float64]:
    """Return softmax over the last dimension."""
    powers = numpy.exp(scores - scores.max(-1, keepdims=True))
    weights: NDArray[numpy.float64] = powers / powers.sum(-1, keepdims=True)
    return weights


def head_pattern(correlations: NDArray[numpy.float64]) -> HeadPattern:
    """Name the pattern of one head by the rule of this module.

    Args:
        correlations: v_ij [S, S]; position 0 is [CLS].
    """
    weights = softmax(correlations[1:, 1:])
    n = len(weights)
    radius = max(1, n // WORDS_PER_RADIUS)
    place = numpy.arange(n)
    distance = place[None, :] - place[:, None]

    def mean_weight(where: NDArray[numpy.bool_]) -> float:
        return float((weights * where).sum(1).mean())

    before, after = mean_weight(distance < 0), mean_weight(distance > 0)
    is_near = abs(distance) <= radius
    near = mean_weight(is_near)
    near_times = near / float(is_near.mean())
    name = _name(before, after, near_times)
    return HeadPattern(name, before, mean_weight(distance == 0), after, near, near_times, radius)


def _name(before: float, after: float, near_times: float) -> str:
    one_sided = ONE_SIDED * (before + after)
    if before >= one_sided > 0:
        return "previous"
    if after >= one_sided > 0:
        return "next"
    if near_times >= NEAR_TIMES:
        return "local"
    return "global, not local" if near_times <= 1 / NEAR_TIMES else "broad"
