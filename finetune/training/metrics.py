"""Scores of predictions, computed by scikit-learn and SciPy.

A score is a fraction of 1. An undefined score is 0: a correlation with constant predictions, an F1
without positive predictions and labels. NaN would propagate into every average.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy
from numpy.typing import ArrayLike, NDArray
from scipy.stats import NearConstantInputWarning, pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from finetune.results.result import Scores
from finetune.tasks.task import Example, Task, TaskData

Metric = Callable[[ArrayLike, ArrayLike], float]


def _of_classes(function: Callable[..., float], **options: Any) -> Metric:
    def metric(predictions: ArrayLike, labels: ArrayLike) -> float:
        with warnings.catch_warnings():
            # "A single label was found": Matthews' coefficient is 0 then.
            warnings.simplefilter("ignore", UserWarning)
            return float(function(labels, predictions, **options))

    return metric


def _correlation(coefficient: Callable[..., tuple[float, float]]) -> Metric:
    def metric(predictions: ArrayLike, labels: ArrayLike) -> float:
        left, right = (
            numpy.asarray(values, numpy.float64).reshape(-1) for values in (predictions, labels)
        )
        if numpy.ptp(left) == 0 or numpy.ptp(right) == 0:
            return 0.0
        with warnings.catch_warnings():
            # Values that differ in their last bits only: the coefficient is finite noise.
            warnings.simplefilter("ignore", NearConstantInputWarning)
            return float(coefficient(left, right)[0])

    return metric


METRICS: dict[str, Metric] = {
    "accuracy": _of_classes(accuracy_score),
    "f1": _of_classes(f1_score, zero_division=0),  # of class 1
    # Over the classes that are predicted or labelled.
    "macro_f1": _of_classes(f1_score, average="macro", zero_division=0),
    "micro_f1": _of_classes(f1_score, average="micro", zero_division=0),
    "matthews": _of_classes(matthews_corrcoef),
    "pearson": _correlation(pearsonr),
    "spearman": _correlation(spearmanr),
}


def scores_of(task: Task, outputs: ArrayLike, labels: Sequence[Any]) -> dict[str, float]:
    """Return every metric of a task.

    Args:
        task: names the metrics.
        outputs: of the model, shape (examples, classes); the largest is the prediction, or of
            several labels the positive ones. In a regression one value per example.
        labels: indices into the task's labels, tuples of them, or values.
    """
    numbers = numpy.asarray(outputs)
    if task.kind == "multi-label":
        return _scores(task, numbers > 0, _indicators(task, labels))
    return _scores(task, numbers if task.kind == "regression" else numbers.argmax(-1), labels)


def _scores(task: Task, predictions: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    return {name: METRICS[name](predictions, labels) for name in task.metrics}


def _indicators(task: Task, labels: Sequence[Any]) -> NDArray[numpy.bool_]:
    return numpy.array([[n in several for n in range(len(task.labels))] for several in labels])


def majority_scores(data: TaskData) -> Scores:
    """Return the scores of predicting the most frequent training label, or the mean value.

    Of equally frequent labels the first counts; of several labels, the most frequent set.
    """
    task, known = data.task, _labels(data.train)
    if task.kind == "regression":
        guess = sum(known) / len(known)
    else:
        counts = Counter(known)
        guess = min(counts, key=lambda label: (-counts[label], label))
    scores = {}
    for split, examples in data.development.items():
        guesses, labels = [guess] * len(examples), _labels(examples)
        if task.kind == "multi-label":
            scores[split] = _scores(task, _indicators(task, guesses), _indicators(task, labels))
        else:
            scores[split] = _scores(task, guesses, labels)
    return scores


def _labels(examples: Sequence[Example]) -> list[Any]:
    return [example.label for example in examples if example.label is not None]
