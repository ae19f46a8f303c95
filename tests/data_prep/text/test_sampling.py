import math
from fractions import Fraction

import numpy as np
import pytest

from data_prep.text.sampling import Before, EvenSample, held_out, passes


@pytest.mark.parametrize("share", [0.02, 0.1, 0.3, 1 / 3, 0.4, 0.5, 0.999, 1.0, 2.3 % 1, 0.0])
def test_a_share_is_taken_evenly_and_counted_right(share):
    chosen = EvenSample(share).taken(0, 10_000)
    assert abs(chosen.sum() - 10_000 * share) <= 1
    for begin in (0, 17, 9000):  # evenly: right to an item in every stretch
        assert abs(chosen[begin : begin + 1000].sum() - 1000 * share) <= 1
    for end in (0, 1, 2, 49, 50, 51, 777):
        assert EvenSample(share).num_taken_before(end) == chosen[:end].sum()
    assert [EvenSample(share).takes(place) for place in range(200)] == chosen[:200].tolist()
    assert EvenSample(share).taken(123, 50).tolist() == chosen[123:173].tolist()


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ([1.0], [(0, True)]),
        ([0.5, 1.0], [(0, False), (1, True)]),
        ([2.5, 1.0], [(0, True), (1, True), (0, True), (0, False)]),
        ([0.3, 3.0, 1.5], [(0, False), (1, True), (2, True), (1, True), (2, False), (1, True)]),
    ],
)
def test_every_pass_uses_each_part_at_most_once(weights, expected):
    assert passes(weights) == expected


@pytest.mark.parametrize("share", [0.02, 0.1, 0.5])
@pytest.mark.parametrize("longest", [1, 30])
def test_parts_of_a_document_are_on_one_side_wherever_segments_end(share, longest):
    random = np.random.default_rng(0)
    sizes = random.integers(1, longest + 1, 300)
    number, expected = 0, []
    for size in sizes.tolist():  # one is held out where fewer than i * share have been, rounded up
        expected += [sum(expected) < math.floor(number * Fraction(str(share))) + 1] * size
        number += size
    continues = np.concatenate([np.arange(size) > 0 for size in sizes])
    found, before = [], Before()
    for end in [*np.sort(random.integers(0, number, 9)).tolist(), number]:
        flags, before = held_out(share, continues[len(found) : end], before)
        found += flags.tolist()
    assert found == expected
    if longest == 1:
        assert found == EvenSample(share).taken(0, number).tolist()
