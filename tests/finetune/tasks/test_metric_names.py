"""Which metric a task of one's own is scored by."""

import pytest

from finetune.tasks.metric_names import METRIC_NAMES, metrics_of
from finetune.tasks.task import TaskError
from finetune.training.metrics import METRICS


def test_every_metric_that_is_computed_has_a_name_and_the_other_way_round():
    assert METRIC_NAMES.keys() == METRICS.keys()


@pytest.mark.parametrize(
    ("counts", "main"),
    [
        ({"no": 10, "yes": 5}, "accuracy"),  # twice as frequent is still balanced
        ({"no": 11, "yes": 5}, "macro_f1"),
        ({"a": 8, "b": 8, "c": 3}, "macro_f1"),
    ],
)
def test_imbalanced_classes_count_by_macro_f1_and_the_rule_is_said(counts, main):
    words = [label for label, count in counts.items() for _ in range(count)]
    (first, *_), notes = metrics_of("classification", None, words)
    frequent, rare = max(counts, key=counts.get), min(counts, key=counts.get)
    times = f"'{frequent}' is {counts[frequent] / counts[rare]:.3g} times as frequent as '{rare}'"
    assert first == main
    assert [times in note for note in notes] == [True] * (main == "macro_f1")


@pytest.mark.parametrize(
    ("kind", "words", "main", "others"),
    [
        ("classification", "ab", "accuracy", {"macro_f1", "matthews", "f1"}),
        ("classification", "ab", "f1", {"accuracy", "macro_f1", "matthews"}),
        ("classification", "abc", "matthews", {"accuracy", "macro_f1"}),
        ("regression", "", "spearman", {"pearson"}),
    ],
)
def test_a_task_has_every_metric_of_its_kind_and_the_chosen_one_in_front(kind, words, main, others):
    (first, *further), _ = metrics_of(kind, main, words)
    assert first == main and set(further) == others and len(further) == len(others)


@pytest.mark.parametrize(
    ("main", "message"),
    [
        ("f1", "--metric f1 does not fit: f1 is of one of two classes; give one of"),
        ("pearson", "--metric pearson does not fit: give one of accuracy, macro_f1"),
    ],
)
def test_a_metric_of_another_kind_is_refused(main, message):
    with pytest.raises(TaskError, match=message):
        metrics_of("classification", main, "abc")
