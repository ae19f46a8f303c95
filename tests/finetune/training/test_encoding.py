"""Examples become rows; those of a symmetric task become two."""

import pytest

from finetune.tasks.task import Example, Task, TaskData
from finetune.training.encoding import encode_task


class Letters:
    """A text encoder of which every letter is a token."""

    pad = 0

    def ids(self, first, second, *, max_length):
        return [2, *map(ord, first), 3, *map(ord, second), 3][:max_length]


@pytest.mark.parametrize("orders", [1, 2])
def test_both_orders_are_rows_of_training_and_one_order_is_scored(orders):
    task = Task("pairs", ("0", "1"), ("accuracy",), ("a", "b"))
    examples = [Example(("ab", "c"), 1, "7"), Example(("d", "e"), 0, "8")]
    data = TaskData(task, examples, {"dev": examples}, {})
    found = encode_task(data, Letters(), sequence_length=9, orders=orders)
    rows = [[2, 97, 98, 3, 99, 3], [2, 100, 3, 101, 3]]
    swapped = [[2, 99, 3, 97, 98, 3], [2, 101, 3, 100, 3]]
    for split, expected, labels in (
        (found.train, rows + swapped * (orders - 1), [1, 0] * orders),
        (found.development["dev"], rows, [1, 0]),
    ):
        for number, row in enumerate(expected):
            assert split.rows.batch([number]).ids_BS[0, : len(row)].tolist() == row
        assert len(split.rows) == len(expected) and split.labels == labels
