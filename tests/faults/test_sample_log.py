"""The log of samples tells rows, and steps that were taken twice or not at all, apart."""

import pytest
import torch

from pretrain.data.batches import MaskedBatch

from .sample_log import behind_the_weights, digests


def test_of_a_launch_the_steps_before_the_next_one_count_and_a_gap_stays_one():
    launches = [(0, {0: ["a"], 1: ["b"]}), (None, {}), (1, {1: ["c"]}), (3, {3: ["d"]})]
    assert behind_the_weights(launches) == {0: ["a"], 1: ["c"], 3: ["d"]}


def batch(rows):
    """Rows of 4 tokens with 2 predictions each, at places that depend on the row."""
    ids = torch.tensor([[row, 11, 12, 13] for row in rows])
    positions = [
        4 * place + offset + row % 2 for place, row in enumerate(rows) for offset in (0, 2)
    ]
    labels = [label for row in rows for label in (row, row + 100)]
    return MaskedBatch(ids, torch.tensor(positions), torch.tensor(labels))


def test_a_row_has_one_digest_wherever_it_lies():
    assert digests(batch([5, 6, 7])) == [digests(batch([row]))[0] for row in (5, 6, 7)]


@pytest.mark.parametrize("name", MaskedBatch._fields)
def test_a_row_that_is_masked_otherwise_has_another_digest(name):
    one = batch([5])
    changed = one._replace(**{name: getattr(one, name) + 1})
    assert digests(changed) != digests(one)
