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
from numpy.typing import ArrayLike
from scipy.stats import NearConstantInputWarning, pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef
from sklearn.preprocessing import MultiLabelBinarizer

from finetune.results.result import Scores
from finetune.tasks.task import Task, TaskData

Metric = Callable[[ArrayLike, ArrayLike], float]


def _of_classes(function: Callable[..., float], **options: Any) -> Metric:
    def metric(predictions: ArrayLike, labels: ArrayLike) -> float:
        with warnings.catch_warnings():
            # "A single label was found": Matthews' coefficient is 0 then.
            warnings.simplefilter("ignore", UserWarning)
            return float(numpy.nan_to_num(function(labels, predictions, **options)))

    return metric


def _correlation(coefficient: Callable[..., tuple[float, float]]) -> Metric:
    def metric(predictions: ArrayLike, labels: ArrayLike) -> float:
        if numpy.ptp(predictions) == 0 or numpy.ptp(labels) == 0:
            return 0.0
        with warnings.catch_warnings():
            # Values that differ in their last bits only: the coefficient is finite noise.
            warnings.simplefilter("ignore", NearConstantInputWarning)
            return float(coefficient(predictions, labels)[0])

    return metric


def _entity_f1(predictions: Any, labels: Any) -> float:
    """Return the F1 of whole entities as conlleval does, of BIO, BIOES, BMES or BILOU tags.

    A tag without such a mark, as a part of speech, is an entity of one word.
    """
    found, true = (
        {(row, *entity) for row, tags in enumerate(rows) for entity in _entities(tags)}
        for rows in (predictions, labels)
    )
    return 2 * len(found & true) / max(1, len(found) + len(true))


def _entities(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return the kind of each entity, its first word, and the word after its last."""
    found: list[tuple[str, int, int]] = []
    for place, tag in enumerate(tags):
        mark, dash, kind = tag.partition("-")
        if tag not in {*"BIOELMSU"} and not (dash and mark in {*"BIELMSU"}):
            mark, kind = "B", tag  # a part of speech
        goes_on = mark in {*"IELM"} and tags[place - 1].partition("-")[0] not in {*"ELSU"}
        if goes_on and found and found[-1][::2] == (kind, place):
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
    "macro_f1": _of_classes(f1_score, average="macro", zero_division=numpy.nan),
    "micro_f1": _of_classes(f1_score, average="micro", zero_division=0),
    "matthews": _of_classes(matthews_corrcoef),
    "pearson": _correlation(pearsonr),
    "spearman": _correlation(spearmanr),
    "entity_f1": _entity_f1,
    "answer_f1": _of_answers(_overlap),
    "exact_match": _of_answers(operator.eq),
}


def scores_of(task: Task, predictions: Sequence[Any], labels: Sequence[Any]) -> dict[str, float]:
    """Return every metric of a task, from what was predicted for each example and its label."""
    if task.kind == "tags":
        predictions, labels = (
            [[task.labels[tag] for tag in row] for row in rows] for rows in (predictions, labels)
        )
    elif task.kind == "multi-label":
        binarizer = MultiLabelBinarizer(classes=range(len(task.labels)))
        predictions, labels = map(binarizer.fit_transform, (predictions, labels))
    return {name: METRICS[name](predictions, labels) for name in task.metrics}


def majority_scores(data: TaskData) -> Scores:
    """Return the scores of predicting the most frequent training label, or the mean value.

    Of equally frequent labels the first counts; of several labels, the most frequent set. Answers
    are empty.
    """
    kind, known = data.task.kind, list[Any](one.label for one in data.train)
    guess: Any = ""
    if kind == "regression":
        guess = sum(known) / len(known)
    elif kind != "answers":
        counts = Counter(chain(*known) if kind == "tags" else known)
        guess = min(counts, key=lambda label: (-counts[label], label))
    scores = {}
    for split, examples in data.development.items():
        guesses = [[guess] * len(one.texts) if kind == "tags" else guess for one in examples]
        scores[split] = scores_of(data.task, guesses, [one.label for one in examples])
    return scores
