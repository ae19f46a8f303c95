"""Which items of a sequence are used, and how often, by the position of each item alone."""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class EvenSample:
    """Item i is taken if (i * p) mod q < p, for a share of p / q: 0.02 takes 0, 50, 100, ..."""

    def __init__(self, share: float) -> None:
        # Via the decimal digits: 0.02 means 1 / 50, which no binary number equals.
        self._p, self._q = Fraction(str(share)).limit_denominator(1_000_000).as_integer_ratio()

    def takes(self, place: int) -> bool:
        """Return whether one item is taken."""
        return (place * self._p) % self._q < self._p

    def taken(self, first: int, count: int) -> NDArray[np.bool_]:
        """Return which of the items first .. first + count - 1 are taken [count]."""
        places = np.arange(first, first + count)
        flags: NDArray[np.bool_] = (places * self._p) % self._q < self._p
        return flags

    def num_taken_before(self, end: int) -> int:
        """Return how many of the items 0 .. end - 1 are taken."""
        # Item i is taken where i * p / q passes a whole number after item i - 1.
        return (end - 1) * self._p // self._q + 1 if self._p else 0


class Before(NamedTuple):
    """What precedes some documents."""

    documents: int = 0
    held_out: int = 0  # of these
    is_last: bool = False  # whether the last of them is held out


def held_out(
    share: float, continues: NDArray[np.bool_], before: Before
) -> tuple[NDArray[np.bool_], Before]:
    """Return which documents are held out, and what precedes the next ones.

    One is held out where fewer than the share are so far: where none continues another one, those
    that `EvenSample` takes.

    Args:
        share: Of the documents.
        continues: Which ones are parts of the document before them, and stay on its side [n].
        before: What precedes them.
    """
    sample, count = EvenSample(share), len(continues)
    flags = np.zeros(count, np.bool_)
    starts = np.flatnonzero(~continues)
    ends = np.append(starts, count)[1:]
    flags[: starts[0] if len(starts) else None] = before.is_last
    wanted = np.cumsum(sample.taken(before.documents, count), dtype=np.int64)[starts]
    wanted = wanted + sample.num_taken_before(before.documents)
    number, total = 0, before.held_out + int(flags.sum())
    while (number := max(number, int(np.searchsorted(wanted, total, side="right")))) < len(starts):
        flags[starts[number] : ends[number]] = True
        total += int(ends[number] - starts[number])
        number += 1
    is_last = bool(flags[-1]) if count else before.is_last
    return flags, Before(before.documents + count, total, is_last)


def passes(weights: Sequence[float]) -> list[tuple[int, bool]]:
    """Return the order in which weighted parts are used: (number of the part, whether whole).

    A weight is the number of uses in an epoch, as "epochs" in The Pile (Gao et al. 2020, Table 1):
    2.5 is two whole uses and a sample of one half. Each pass uses every part at most once, so
    copies of a document are a pass apart.
    """
    return [
        (number, weight >= done + 1)
        for done in range(math.ceil(max(weights)))
        for number, weight in enumerate(weights)
        if weight > done
    ]
