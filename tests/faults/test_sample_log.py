"""The count of samples finds planted defects."""

import json

import pytest
import torch

from pretrain.data.batches import MaskedBatch

from .sample_log import Consumed, behind_the_weights, count_samples, digests, read_launch

EXPECTED = [[f"{step}-{place}" for place in range(4)] for step in range(6)]


def launch(first_step, end, samples=EXPECTED):
    return Consumed(first_step, {step: samples[step] for step in range(first_step, end)})


SHIFTED = [EXPECTED[0], *EXPECTED[:5]]
SWAPPED = [EXPECTED[0], EXPECTED[1][::-1], *EXPECTED[2:]]


@pytest.mark.parametrize(
    ("launches", "expected"),
    [
        ([launch(0, 5), launch(2, 4), Consumed(None, {}), launch(2, 6)], (0, 0, 0)),
        ([launch(0, 3), launch(4, 6)], (4, 0, 1)),  # a step was not taken
        ([launch(0, 3), launch(3, 6, SHIFTED)], (4, 4, 3)),  # one twice, under another number
        ([launch(0, 6), Consumed(6, {6: EXPECTED[0]})], (0, 4, 1)),  # one after the end
        ([launch(0, 6, SWAPPED)], (0, 0, 1)),
    ],
)
def test_samples_that_are_lost_repeated_or_misplaced_are_counted(launches, expected):
    count = count_samples(EXPECTED, behind_the_weights(launches))
    assert (count.lost, count.repeated, count.misplaced) == expected


def test_ranks_take_turns_and_a_line_that_was_cut_short_does_not_count(tmp_path):
    files = []
    for rank in range(2):
        micro_batches = [[f"{micro}{rank}{place}" for place in range(2)] for micro in range(2)]
        records = [{"first_step": 3}, {"step": 3, "micro_batches": micro_batches}]
        text = "".join(json.dumps(record) + "\n" for record in records)
        files.append(tmp_path / f"rank-{rank}.jsonl")
        files[-1].write_text(text + '{"step": 4, "micro_b')
    found = read_launch(files)
    assert found == Consumed(3, {3: ["000", "001", "010", "011", "100", "101", "110", "111"]})


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
    assert digests(batch([7, 5])) == digests(batch([5, 7]))[::-1]


@pytest.mark.parametrize("name", MaskedBatch._fields)
def test_a_row_that_is_masked_otherwise_has_another_digest(name):
    one = batch([5])
    changed = one._replace(**{name: getattr(one, name) + 1})
    assert digests(changed) != digests(one)
