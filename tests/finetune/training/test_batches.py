"""Every row comes once an epoch, with rows of its length, in an order of the seed and the epoch."""

import numpy
import pytest
import torch

from finetune.training.batches import TokenRows, evaluation_batches, training_batches


def some_lengths(count):
    return numpy.random.default_rng(0).integers(5, 120, count)


@pytest.mark.parametrize("count", [1, 31, 32, 33, 1000])
def test_every_row_comes_once_and_one_batch_at_most_is_smaller(count):
    lengths = some_lengths(count)
    for batches in (
        training_batches(lengths, 32, seed=0, epoch=0),
        evaluation_batches(lengths, 32),
    ):
        assert sorted(numpy.concatenate(batches)) == list(range(count))
        sizes = sorted(map(len, batches), reverse=True)
        assert sizes[:-1] == [32] * (len(sizes) - 1) and len(sizes) == -(-count // 32)


def test_the_order_is_a_function_of_seed_and_epoch_and_of_nothing_else():
    lengths = some_lengths(500)

    def order(seed, epoch):
        return numpy.concatenate(training_batches(lengths, 16, seed=seed, epoch=epoch)).tolist()

    first = order(0, 0)
    numpy.random.seed(7)
    torch.manual_seed(7)
    assert order(0, 0) == first
    assert len({tuple(order(seed, epoch)) for seed in (0, 1) for epoch in (0, 1)}) == 4


def padding(lengths, batches):
    tokens = sum(len(batch) * lengths[batch].max() for batch in batches)
    return 1 - lengths.sum() / tokens


def test_rows_of_similar_length_meet_but_not_the_same_ones_in_every_epoch():
    lengths = some_lengths(2000)
    random = numpy.random.default_rng(1).permutation(2000).reshape(-1, 20)
    epochs = [training_batches(lengths, 20, seed=0, epoch=epoch) for epoch in range(2)]
    assert padding(lengths, random) > 0.4
    assert padding(lengths, epochs[0]) < 0.1
    neighbours = [{frozenset(batch.tolist()) for batch in epoch} for epoch in epochs]
    assert not neighbours[0] & neighbours[1]


def test_a_batch_is_its_rows_padded_to_a_multiple_of_eight_but_not_beyond_the_longest_row():
    rows = [[2, 7, 3], [2, *range(10, 20), 3], [2, 3]]
    ids, lengths, _ = TokenRows(rows, pad=9, longest=14).batch(numpy.array([1, 0]))
    assert ids.tolist() == [[2, *range(10, 20), 3, 9, 9], [2, 7, 3] + [9] * 11]
    assert (lengths.tolist(), lengths.dtype, ids.dtype) == ([12, 3], torch.int32, torch.int64)
    assert TokenRows(rows, pad=9, longest=128).batch(numpy.array([2])).ids_BS.shape == (1, 8)
