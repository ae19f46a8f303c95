"""Scores of predictions, computed by scikit-learn and SciPy.

A score is a fraction of 1. An undefined score is 0: a correlation with constant predictions, an F1
without positive predictions and labels. NaN would propagate into every average.
"""

import operator
import re
import string
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
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


def _entity_f1(predictions: Any, labels: Any) -> float:
    """Return the F1 of whole entities, as conlleval computes it, of the tags of sentences."""
    found, true = (
        {(row, *entity) for row, tags in enumerate(rows) for entity in _entities(tags)}
        for rows in (predictions, labels)
    )
    return 2 * len(found & true) / max(1, len(found) + len(true))


def _entities(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return the kind of each entity, its first word, and the word after its last."""
    found: list[tuple[str, int, int]] = []
    for place, tag in enumerate(tags):
        mark, _, kind = tag.partition("-")
        if mark == "I" and found and found[-1][::2] == (kind, place):
            found[-1] = (kind, found[-1][1], place + 1)
        elif mark != "O":
            found.append((kind, place, place + 1))
    return found


def _of_answers(score: Callable[[list[str], list[str]], float]) -> Metric:
    """Return the mean score with the best answer of each (Rajpurkar et al. 2016, Sec. 6.1)."""

    def words(text: str) -> list[str]:
        letters = "".join(letter for letter in text.lower() if letter not in string.punctuation)
        return re.sub(r"\b(a|an|the)\b", " ", letters).split()

    def metric(predictions: Any, labels: Any) -> float:
        best = [
            max(score(words(guess), words(text)) for _, text in answers or [(0, "")])
            for guess, answers in zip(predictions, labels, strict=True)
        ]
        return float(numpy.mean(best))

    return metric


def _overlap(found: list[str], true: list[str]) -> float:
    """Return the F1 of words; of no words and no words 1."""
    common = (Counter(found) & Counter(true)).total()
    return 2 * common / (len(found) + len(true)) if found and true else float(found == true)


METRICS: dict[str, Metric] = {
    "accuracy": _of_classes(accuracy_score),
    "f1": _of_classes(f1_score, zero_division=0),  # of class 1
    # Over the classes that are predicted or labelled.
    "macro_f1": _of_classes(f1_score, average="macro", zero_division=0),
    "micro_f1": _of_classes(f1_score, average="micro", zero_division=0),
    "matthews": _of_classes(matthews_corrcoef),
    "pearson": _correlation(pearsonr),
    "spearman": _correlation(spearmanr),
    "entity_f1": _entity_f1,
    "answer_f1": _of_answers(_overlap),
    "exact_match": _of_answers(operator.eq),
}


def scores_of(task: Task, outputs: Any, labels: Sequence[Any]) -> dict[str, float]:
    """Return every metric of a task.

    Args:
        task: names the metrics.
        outputs: of the model, shape (examples, classes); the largest is the prediction, or of
            several labels the positive ones. In a regression one value per example; of tags and
            answers the predictions.
        labels: indices into the task's labels, tuples of them, or values.
    """
    if task.kind == "tags":
        rows = [[[task.labels[tag] for tag in row] for row in rows] for rows in (outputs, labels)]
        return _scores(task, *rows)
    if task.kind == "answers":
        return _scores(task, outputs, labels)
    numbers = numpy.asarray(outputs)
    if task.kind == "multi-label":
        return _scores(task, numbers > 0, _indicators(task, labels))
    return _scores(task, numbers if task.kind == "regression" else numbers.argmax(-1), labels)


def _scores(task: Task, predictions: Any, labels: Any) -> dict[str, float]:
    return {name: METRICS[name](predictions, labels) for name in task.metrics}


def _indicators(task: Task, labels: Sequence[Any]) -> NDArray[numpy.bool_]:
    return numpy.array([[n in several for n in range(len(task.labels))] for several in labels])


def majority_scores(data: TaskData) -> Scores:
    """Return the scores of predicting the most frequent training label, or the mean value.

    Of equally frequent labels the first counts; of several labels, the most frequent set. Answers
    are empty.
    """
    task, known = data.task, _labels(data.train)
    guess: Any = ""
    if task.kind == "regression":
        guess = sum(known) / len(known)
    elif task.kind != "answers":
        counts = Counter(chain(*known) if task.kind == "tags" else known)
        guess = min(counts, key=lambda label: (-counts[label], label))
    scores = {}
    for split, examples in data.development.items():
        guesses, labels = [guess] * len(examples), _labels(examples)
        if task.kind == "multi-label":
            scores[split] = _scores(task, _indicators(task, guesses), _indicators(task, labels))
        elif task.kind == "tags":
            scores[split] = scores_of(task, [[guess] * len(one.texts) for one in examples], labels)
        else:
            scores[split] = _scores(task, guesses, labels)
    return scores


def _labels(examples: Sequence[Example]) -> list[Any]:
    return [example.label for example in examples if example.label is not None]
