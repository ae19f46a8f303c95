"""Digests distinguish examples, and their first parts are what they have always been."""

import hashlib

import pytest

from finetune.tasks.task import Example, Task, TaskData

ROWS = [Example((f"text {number}",), number % 2, str(number)) for number in range(5)]
TEST = [Example(("new",), None, "0"), Example(("newer",), None, "1")]


def data(*, labels=("no", "yes"), train=ROWS[:3], dev=ROWS[3:], test=TEST):
    task = Task("tiny", labels, ("accuracy",), ("text",))
    return TaskData(task, train, {"dev": dev}, {"test": test})


@pytest.mark.parametrize(
    "changes",
    [
        {"train": ROWS[:2], "dev": ROWS[2:]},
        {"labels": ("yes", "no")},
        {"train": [*ROWS[:2], ROWS[2]._replace(label=1)]},
        {"dev": [ROWS[3], ROWS[4]._replace(texts=("other",))]},
    ],
)
def test_moved_boundaries_renamed_labels_and_other_rows_make_another_digest(changes):
    assert data(**changes).labelled_digest != data().labelled_digest == data().labelled_digest


def test_the_identities_of_a_test_set_are_part_of_its_digest():
    moved = [row._replace(identity=str(int(row.identity) + 1)) for row in TEST]
    assert data(test=moved).test_digests != data().test_digests == data().test_digests


def test_the_first_part_is_that_of_earlier_folders():
    for digest, rows in ((data().labelled_digest, ROWS), (data().test_digests["tiny"], TEST)):
        text = "".join(repr((row.texts, row.label)) for row in rows)
        assert digest.split("-")[0] == hashlib.sha256(text.encode()).hexdigest()[:16]
