import pytest

from data_prep.text.sampling import EvenSample, passes


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
