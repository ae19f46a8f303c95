import numpy as np
import pytest

from data_prep.masking import IGNORED, mask_rows, predictions_per_row, splitmix64
from data_prep.shards import TokenizerRecord

SPECIAL = {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
TOKENIZER = TokenizerRecord(
    kind="wordpiece", sha256="", vocabulary_size=1000, special_tokens=SPECIAL
)
NUM_ROWS, LENGTH = 2000, 100


@pytest.fixture(scope="module")
def ids():
    rows = np.random.default_rng(0).integers(5, 1000, (NUM_ROWS, LENGTH)).astype(np.uint16)
    rows[:, 0], rows[:, 40], rows[:, -1] = 2, 3, 3
    return rows


def masked(ids, numbers=None, seed=7, epoch=0, **options):
    numbers = np.arange(len(ids)) if numbers is None else numbers
    return mask_rows(ids, numbers, seed=seed, epoch=epoch, tokenizer=TOKENIZER, **options)


def splitmix64_of_integers(state):
    state = (state + 0x9E3779B97F4A7C15) % 2**64
    mixed = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
    return mixed ^ (mixed >> 31)


def test_splitmix64_equals_plain_integer_arithmetic():
    states = [0, 1, 12345, 2**63, 2**64 - 1, 0x9E3779B97F4A7C15]
    found = splitmix64(np.array(states, np.uint64)).tolist()
    assert found == [splitmix64_of_integers(state) for state in states]


def test_splitmix64_from_0_begins_with_the_published_value():
    assert splitmix64(np.zeros(1, np.uint64))[0] == 0xE220A8397B1DCDAF


def test_the_chosen_columns_are_those_with_the_smallest_hashes(ids):
    row, count = 3, predictions_per_row(LENGTH)
    stream = splitmix64_of_integers(7)
    stream = splitmix64_of_integers(stream ^ 2)
    stream = splitmix64_of_integers(stream ^ row)
    ordinary = [column for column in range(LENGTH) if ids[row, column] not in SPECIAL.values()]
    key = {
        column: splitmix64_of_integers((stream + column * 0x9E3779B97F4A7C15) % 2**64) >> 8
        for column in ordinary
    }
    expected = sorted(sorted(ordinary, key=key.__getitem__)[:count])
    assert masked(ids, epoch=2).positions[row].tolist() == expected


def test_a_row_has_15_percent_predictions_and_at_least_one():
    assert [predictions_per_row(length) for length in (100, 128, 512, 3)] == [15, 19, 77, 1]
    assert predictions_per_row(100, 0.4) == 40


def test_every_row_has_exactly_k_different_ascending_positions(ids):
    found = masked(ids)
    assert found.positions.shape == found.labels.shape == (NUM_ROWS, 15)
    assert (np.diff(found.positions, axis=1) > 0).all()
    assert all(array.dtype == np.int64 for array in found)


def test_labels_are_the_original_tokens_and_other_positions_do_not_change(ids):
    found = masked(ids)
    assert (found.labels == np.take_along_axis(ids, found.positions, axis=1)).all()
    unchanged = np.ones(ids.shape, bool)
    np.put_along_axis(unchanged, found.positions, False, axis=1)
    assert (found.ids[unchanged] == ids[unchanged]).all()


def test_special_tokens_are_neither_hidden_nor_drawn(ids):
    found = masked(ids)
    assert (found.labels > 4).all()
    shown = np.take_along_axis(found.ids, found.positions, axis=1)
    assert (shown >= 4).all()  # 4 is [MASK]


def test_80_percent_are_masked_10_percent_random_and_10_percent_left(ids):
    found = masked(ids)
    shown = np.take_along_axis(found.ids, found.positions, axis=1)
    # 30,000 draws: four standard deviations are at most 0.0093.
    assert (shown == 4).mean() == pytest.approx(0.8, abs=0.0093)
    assert (shown == found.labels).mean() == pytest.approx(0.1 + 0.1 / 995, abs=0.007)


def test_random_tokens_are_spread_over_the_vocabulary(ids):
    found = masked(ids)
    shown = np.take_along_axis(found.ids, found.positions, axis=1)
    drawn = shown[(shown != 4) & (shown != found.labels)]
    counts, _ = np.histogram(drawn, bins=5, range=(5, 1000))
    # About 600 a bin, standard deviation 22.
    assert counts.sum() == len(drawn)
    assert np.abs(counts - len(drawn) / 5).max() < 4 * 22


def test_every_ordinary_column_is_equally_likely(ids):
    counts = np.bincount(masked(ids).positions.ravel(), minlength=LENGTH)
    assert counts[[0, 40, LENGTH - 1]].sum() == 0
    ordinary = np.delete(counts, [0, 40, LENGTH - 1])
    expected = NUM_ROWS * 15 / 97  # 309, standard deviation 16
    assert np.abs(ordinary - expected).max() < 5 * 16


def test_a_row_is_masked_alike_in_every_batch(ids):
    whole = masked(ids)
    numbers = np.array([5, 1999, 17])
    alone = masked(ids[numbers], numbers)
    for some, all_rows in zip(alone, whole, strict=True):
        assert (some == all_rows[numbers]).all()


def test_other_epochs_and_seeds_give_other_masks(ids):
    first = masked(ids).positions
    for other in (masked(ids, epoch=1), masked(ids, seed=8), masked(ids, seed=-7)):
        assert (other.positions != first).any(axis=1).mean() > 0.99


def test_rows_with_too_few_ordinary_tokens_have_ignored_labels():
    ids = np.zeros((4, 20), np.uint16)
    ids[:, 1] = 9
    found = masked(ids)
    assert (np.sort(found.labels, axis=1) == [IGNORED, IGNORED, 9]).all()
    assert (found.ids[:, 2:] == 0).all()
