"""The names of the metrics, and which of them fit a task of the user's own."""

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from data_prep.files.quoting import quoted
from finetune.tasks.task import TaskError

OfTables = Literal["accuracy", "f1", "macro_f1", "micro_f1", "matthews", "pearson", "spearman"]
MetricName = OfTables | Literal["entity_f1", "answer_f1", "exact_match"]
# As tables call them; training/metrics.py computes them.
METRIC_NAMES = {
    "accuracy": "accuracy",
    "f1": "F1",
    "macro_f1": "macro F1",
    "micro_f1": "micro F1",
    "matthews": "Matthews",
    "pearson": "Pearson",
    "spearman": "Spearman",
    "entity_f1": "entity F1",
    "answer_f1": "answer F1",
    "exact_match": "exact match",
}
OF_VALUES = ("pearson", "spearman")
OF_CLASSES = ("accuracy", "macro_f1", "matthews")
OF_SEVERAL = ("micro_f1", "macro_f1", "accuracy")  # labels of an example
OF_TOKENS = {"tags": ("entity_f1",), "answers": ("answer_f1", "exact_match")}
# Between the frequencies of two labels; GLUE too counts CoLA (2.4) by Matthews, MRPC (2.1) by F1.
BALANCED_RATIO = 2.0


def metrics_of(labels: Sequence[str], main: str, *, several: bool = False) -> tuple[str, ...]:
    """Return the metrics of a task with these labels, none being a regression, `main` in front.

    `several`: an example has any number of the labels.

    Raises:
        TaskError: it does not fit them.
    """
    metrics: tuple[str, ...] = OF_CLASSES if labels else OF_VALUES
    if several:
        metrics = OF_SEVERAL
    elif len(labels) == 2:
        metrics = (*metrics, "f1")
    return with_main(metrics, main)


def with_main(metrics: tuple[str, ...], main: str | None) -> tuple[str, ...]:
    """Return the metrics with `main`, if there is one, in front.

    Raises:
        TaskError: it is none of them.
    """
    if main is not None and main not in metrics:
        two = "f1 is of one of two classes; " if main == "f1" else ""
        raise TaskError(f"--metric {main} does not fit: {two}give one of {', '.join(metrics)}")
    return tuple(sorted(metrics, key=lambda metric: metric != main))


def usual_metric(words: Sequence[str]) -> tuple[MetricName, list[str]]:
    """Return the main metric of a classification, and a remark where it is not accuracy.

    Args:
        words: the label of each training row; two labels or more.
    """
    ordered = Counter(words).most_common()
    (frequent, most), (rare, least) = ordered[0], ordered[-1]
    if most <= BALANCED_RATIO * least:
        return "accuracy", []
    return "macro_f1", [
        f"scored by macro F1, as label {quoted(frequent)} is {most / least:.3g} times as frequent "
        f"as {quoted(rare)}; --metric chooses another"
    ]
