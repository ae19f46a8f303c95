import math
import statistics
import warnings

import pytest
from scipy.stats import rankdata

from finetune.tasks.glue import GLUE
from finetune.tasks.task import Example, TaskData
from finetune.training.metrics import METRICS, majority_scores

PREDICTIONS = [1, 0, 1, 1, 0, 0, 1, 0, 1, 1]
LABELS = [1, 0, 0, 1, 1, 0, 1, 0, 0, 1]
VALUES = [0.5, 1.5, 1.5, 4.0, 2.0, 3.5, 0.0, 5.0]
TRUE_VALUES = [1.0, 1.0, 2.0, 5.0, 2.5, 2.5, 0.2, 4.8]


def f1_of(true_positive, false_positive, false_negative):
    return 2 * true_positive / (2 * true_positive + false_positive + false_negative)


def test_metrics_of_classes_are_their_formulas():
    pairs = list(zip(PREDICTIONS, LABELS, strict=True))
    tp, fp, fn, tn = (pairs.count(pair) for pair in ((1, 1), (1, 0), (0, 1), (0, 0)))
    expected = {
        "accuracy": (tp + tn) / 10,
        "f1": f1_of(tp, fp, fn),
        "macro_f1": (f1_of(tp, fp, fn) + f1_of(tn, fn, fp)) / 2,
        "matthews": (tp * tn - fp * fn) / math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)),
    }
    for name, value in expected.items():
        assert METRICS[name](PREDICTIONS, LABELS) == pytest.approx(value, abs=1e-12), name


def test_a_label_that_is_neither_there_nor_predicted_does_not_count():
    found, true = [[1, 0, 0], [0, 1, 0]], [[1, 0, 0], [1, 0, 0]]
    assert METRICS["macro_f1"](found, true) == pytest.approx((2 / 3 + 0) / 2)
    assert METRICS["macro_f1"]([[0, 0]], [[0, 0]]) == 0


def test_correlations_are_their_formulas():
    pearson = statistics.correlation(VALUES, TRUE_VALUES)
    spearman = statistics.correlation(*map(rankdata, (VALUES, TRUE_VALUES)))
    assert METRICS["pearson"](VALUES, TRUE_VALUES) == pytest.approx(pearson, abs=1e-12)
    assert METRICS["spearman"](VALUES, TRUE_VALUES) == pytest.approx(spearman, abs=1e-12)


@pytest.mark.parametrize("name", [*METRICS][:7])  # those of tables
def test_a_constant_prediction_is_scored_without_a_warning(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for constant in (0, 1):
            for labels in ([0, 1, 1], [1, 1, 1], [0, 0, 0], [1]):
                score = METRICS[name]([constant] * len(labels), labels)
                assert math.isfinite(score)
                if name in ("matthews", "pearson", "spearman"):
                    assert score == 0


def examples(*labels):
    return [Example(("text",), label, "0") for label in labels]


def test_the_majority_is_that_of_the_training_labels():
    data = TaskData(GLUE.tasks["MRPC"], examples(1, 0, 1), {"dev": examples(0, 0, 0, 1)}, {})
    # accuracy 1/4; precision 1/4, recall 1
    assert majority_scores(data) == {"dev": {"accuracy": 0.25, "f1": pytest.approx(0.4)}}
