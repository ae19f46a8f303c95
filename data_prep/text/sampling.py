"""Take a share of a sequence, evenly and exactly, by the place of each item alone."""

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray


class Share:
    """Item i is taken if (i * p) mod q < p, for a share of p / q: 0.02 takes 0, 50, 100, ..."""

    def __init__(self, share: float) -> None:
        # Through the digits: 0.02 is 1 / 50 to its reader, but not as a binary number.
        self._p, self._q = Fraction(str(share)).limit_denominator(1_000_000).as_integer_ratio()

    def takes(self, place: int) -> bool:
        """Say whether one item is taken."""
        return (place * self._p) % self._q < self._p

    def taken(self, first: int, count: int) -> NDArray[np.bool_]:
        """Say which of the items first .. first + count - 1 are taken [count]."""
        places = np.arange(first, first + count)
        chosen: NDArray[np.bool_] = (places * self._p) % self._q < self._p
        return chosen

    def num_taken_before(self, end: int) -> int:
        """Return how many of the items 0 .. end - 1 are taken."""
        # Item i is taken where i * p / q has passed a whole number since item i - 1.
        return (end - 1) * self._p // self._q + 1 if self._p else 0
