"""Precision, recall and F1 of each class, and which classes were predicted in its place."""

import json
from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple

from finetune.report.score_table import ScoreTable, chosen_trial
from finetune.results.result import predictions_file
from finetune.results.sweep_results import SweepResults
from finetune.tasks.examples import number_in
from pretrain.reports.table import Table

SCORES = ("precision", "recall", "F1")
PREDICTED = "as "  # before a class: how many examples of that of the row are predicted as it


class ClassTable(NamedTuple):
    """Scores by class of one model on one task; of one label for each the confusion matrix too."""

    model: str
    task: str
    table: Table


def class_tables(table: ScoreTable, results: SweepResults) -> list[ClassTable]:
    """Return a table for each row and classification, of the trial whose model is kept."""
    found = []
    for row in table.rows:
        for column in table.columns:
            same = (row, column.task)
            trials = [trial for trial in results.trials if (trial.row, trial.result.task) == same]
            trial = chosen_trial(trials, table.rule) if trials else None
            file = predictions_file(trial.folder, column.split) if trial else None
            lines = json.loads(file.read_bytes()) if file and file.is_file() else []
            if trial and (pairs := _pairs(lines)):
                step = "" if row.step is None else f" step {row.step:,}"
                where = (table.label(row) + step, column.title)
                rate, ended = trial.result.learning_rate, [each.result for each in trials]
                count = sum(one.learning_rate == rate and one.status != "failed" for one in ended)
                middle = "the median" if count % 2 else "the lower of the middle two"
                at = f"learning rate {rate:g}, seed {trial.result.seed}, {middle}"
                title = f"{where[0]} on {column.title} by class, scores x 100, {at}"
                remark = "As X: how many are predicted as X."
                found.append(ClassTable(*where, Table(title, list(_rows(pairs)), remark)))
    return found


def _pairs(lines: list[dict[str, Any]]) -> list[Any]:
    """Return what was expected and what predicted for each example, or for each tagged word."""
    if not lines or "label" in lines[0]:
        return [(line["expected"], line["label"]) for line in lines]
    if isinstance(lines[0]["prediction"], list):
        both = (zip(line["expected"], line["prediction"], strict=True) for line in lines)
        return [*chain.from_iterable(both)]
    return []


def _rows(pairs: list[Any]) -> Iterator[dict[str, str]]:
    """Yield the scores of each class, times 100."""
    import numpy
    from scipy.stats.contingency import crosstab
    from sklearn.preprocessing import MultiLabelBinarizer  # takes seconds

    several = isinstance(pairs[0][0], list)
    sets = [cell if several else [cell] for pair in pairs for cell in pair]
    classes = sorted(
        {str(label) for labels in sets for label in labels},
        key=lambda word: (number_in(word) is None, number_in(word) or 0.0, word),
    )
    binary_NC = MultiLabelBinarizer(classes=classes).fit_transform(sets)
    sizes_C, found_C = binary_NC[::2].sum(0), binary_NC[1::2].sum(0)
    hits_C = (binary_NC[::2] & binary_NC[1::2]).sum(0)
    sums_C = found_C, sizes_C, (found_C + sizes_C) / 2  # of precision, recall and F1
    scores = [hits_C / numpy.maximum(sum_C, 0.5) for sum_C in sums_C]
    matrix_CC = numpy.empty((len(classes), 0))
    if not several:
        matrix_CC = crosstab(*zip(*pairs, strict=True), levels=(classes, classes)).count
    for name, shares, size, counts in zip(
        [*classes, "macro average"],
        [*zip(*scores, strict=True), [sum(found) / max(1, len(found)) for found in scores]],
        [*sizes_C, sizes_C.sum()],
        [*matrix_CC, [""] * matrix_CC.shape[1]],
        strict=True,
    ):
        yield {
            "class": name,
            **{one: f"{100 * share:.1f}" for one, share in zip(SCORES, shares, strict=True)},
            "examples": str(size),
            **{f"{PREDICTED}{n}": str(count) for n, count in zip(classes, counts, strict=False)},
        }
