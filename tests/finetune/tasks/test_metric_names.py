"""Which metric a task of one's own is scored by."""

import json

import pytest

from finetune.tasks.custom import OwnTask, read_own
from finetune.tasks.metric_names import METRIC_NAMES
from finetune.tasks.task import TaskError
from finetune.training.metrics import METRICS


@pytest.fixture
def read(tmp_path):
    """Read a task with so many rows of each label."""

    def read(counts, **settings):
        labels = [label for label, count in counts.items() for _ in range(count)]
        rows = [{"text": str(number), "label": label} for number, label in enumerate(labels)]
        for name in ("train", "dev"):
            file = tmp_path / f"{name}.jsonl"
            shown = [{**row, "text": f"{name} {row['text']}"} for row in rows]
            file.write_text("".join(json.dumps(row) + "\n" for row in shown))
        files = {name: tmp_path / f"{name}.jsonl" for name in ("train", "dev")}
        return read_own(OwnTask(**files, **settings))

    return read


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
def test_imbalanced_classes_count_by_macro_f1_and_the_rule_is_said(read, counts, main):
    data = read(counts)
    assert data.task.metrics[0] == main
    frequent, rare = max(counts, key=counts.get), min(counts, key=counts.get)
    expected = (
        f"'{frequent}' is {counts[frequent] / counts[rare]:.3g} times as frequent as '{rare}'"
    )
    notes = [note for note in data.notes if "scored by macro F1" in note]
    assert [expected in note for note in notes] == ([True] if main == "macro_f1" else [])


@pytest.mark.parametrize(
    ("settings", "num_labels", "metrics"),
    [
        ({}, 2, {"accuracy", "macro_f1", "matthews", "f1"}),
        ({"metric": "f1"}, 2, {"f1", "accuracy", "macro_f1", "matthews"}),
        ({"regression": True, "metric": "spearman"}, 3, {"spearman", "pearson"}),
    ],
)
def test_a_task_has_every_metric_of_its_kind_and_the_chosen_one_in_front(
    read, settings, num_labels, metrics
):
    data = read(dict.fromkeys(range(num_labels), 4), **settings)
    assert set(data.task.metrics) == metrics and len(data.task.metrics) == len(metrics)
    chosen = settings.get("metric", "pearson" if "regression" in settings else "accuracy")
    assert data.task.metrics[0] == chosen
    assert data.notes == (("F1 is that of label '1'",) if chosen == "f1" else ())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"metric": "f1"}, "--metric f1 does not fit: f1 is of one of two classes; give one of"),
        ({"metric": "pearson"}, "--metric pearson does not fit: give one of accuracy, macro_f1"),
    ],
)
def test_a_metric_of_another_kind_is_refused(read, settings, message):
    with pytest.raises(TaskError, match=message):
        read({0: 4, 1: 4, 2: 4}, **settings)
