"""Scores of predictions, computed by scikit-learn and SciPy.

A score is a fraction of 1. An undefined score is 0: a correlation with constant predictions, an F1
without positive predictions and labels. NaN would propagate into every average.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Sequence

import numpy
from numpy.typing import ArrayLike, NDArray

from finetune.results.result import Scores
from finetune.tasks.task import Example, Task, TaskData

Metric = Callable[[ArrayLike, ArrayLike], float]


def accuracy(predictions: ArrayLike, labels: ArrayLike) -> float:
    """Return the share of the predictions that equal the label."""
    from sklearn.metrics import accuracy_score

    return float(accuracy_score(labels, predictions))


def f1(predictions: ArrayLike, labels: ArrayLike) -> float:
    """Return the harmonic mean of precision and recall of class 1."""
    from sklearn.metrics import f1_score

    return float(f1_score(labels, predictions, zero_division=0))


def macro_f1(predictions: ArrayLike, labels: ArrayLike) -> float:
    """Return the mean of F1 over the classes that are predicted or labelled."""
    from sklearn.metrics import f1_score

    return float(f1_score(labels, predictions, average="macro", zero_division=0))


def matthews(predictions: ArrayLike, labels: ArrayLike) -> float:
    """Return Matthews' correlation coefficient."""
    from sklearn.metrics import matthews_corrcoef

    with warnings.catch_warnings():
        # "A single label was found": the coefficient is 0 then.
        warnings.simplefilter("ignore", UserWarning)
        return float(matthews_corrcoef(labels, predictions))


def pearson(predictions: ArrayLike, labels: ArrayLike) -> float:
    """Return Pearson's correlation coefficient."""
    from scipy.stats import pearsonr

    return _correlation(pearsonr, predictions, labels)


def spearman(predictions: ArrayLike, labels: ArrayLike) -> float:
    """Return Spearman's rank correlation coefficient."""
    from scipy.stats import spearmanr

    return _correlation(spearmanr, predictions, labels)


METRICS: dict[str, Metric] = {
    "accuracy": accuracy,
    "f1": f1,
    "macro_f1": macro_f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
}


def scores_of(task: Task, outputs: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    """Return every metric of a task.

    Args:
        task: names the metrics.
        outputs: of the model, shape (examples, classes); the largest is the prediction. In a
            regression one value per example.
        labels: indices into the task's labels, or values.

    Raises:
        ValueError: an output is not finite.
    """
    numbers = numpy.asarray(outputs)
    if not numpy.isfinite(numbers).all():
        raise ValueError(f"{task.name}: outputs of the model are not finite")
    predictions = numbers if task.kind == "regression" else numbers.argmax(-1)
    return {name: METRICS[name](predictions, labels) for name in task.metrics}


def majority_scores(data: TaskData) -> Scores:
    """Return the scores of predicting the most frequent training label, or the mean value.

    Of equally frequent labels the first counts.
    """
    known = _labels(data.train)
    guess: float
    if data.task.kind == "regression":
        guess = sum(known) / len(known)
    else:
        counts = Counter(known)
        guess = min(counts, key=lambda label: (-counts[label], label))
    return {
        split: {
            name: METRICS[name]([guess] * len(examples), _labels(examples))
            for name in data.task.metrics
        }
        for split, examples in data.development.items()
    }


def _labels(examples: Sequence[Example]) -> list[int | float]:
    return [example.label for example in examples if example.label is not None]


def _correlation(
    coefficient: Callable[..., tuple[float, float]], predictions: ArrayLike, labels: ArrayLike
) -> float:
    from scipy.stats import NearConstantInputWarning

    left, right = _numbers(predictions), _numbers(labels)
    if numpy.ptp(left) == 0 or numpy.ptp(right) == 0:
        return 0.0
    with warnings.catch_warnings():
        # Values that differ in their last bits only: the coefficient is finite noise.
        warnings.simplefilter("ignore", NearConstantInputWarning)
        return float(coefficient(left, right)[0])


def _numbers(values: ArrayLike) -> NDArray[numpy.float64]:
    return numpy.asarray(values, dtype=numpy.float64).reshape(-1)
