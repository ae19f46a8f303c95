"""The names of the metrics, and which of them fit a task of the user's own."""

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from data_prep.files.quoting import quoted
from finetune.tasks.task import Kind, TaskError

OfTables = Literal["accuracy", "f1", "macro_f1", "micro_f1", "matthews", "pearson", "spearman"]
MetricName = Literal[OfTables, "entity_f1", "answer_f1", "exact_match"]
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
METRICS_OF: dict[Kind, tuple[MetricName, ...]] = {
    "classification": ("accuracy", "macro_f1", "matthews"),  # of two classes f1 too
    "multi-label": ("micro_f1", "macro_f1", "accuracy"),
    "regression": ("pearson", "spearman"),
    "tags": ("entity_f1",),
    "answers": ("answer_f1", "exact_match"),
}
# Between the frequencies of two labels; GLUE too counts CoLA (2.4) by Matthews, MRPC (2.1) by F1.
BALANCED_RATIO = 2.0


def metrics_of(
    kind: Kind, main: MetricName | None, words: Sequence[str] = ()
) -> tuple[tuple[str, ...], list[str]]:
    """Return the metrics of a task of the user's own, the main one in front, and remarks on it.

    Args:
        kind: of the task.
        main: its main metric; None: the first of its kind, of imbalanced classes macro F1.
        words: of a classification the label of each training row; two labels or more.

    Raises:
        TaskError: the main metric does not fit.
    """
    metrics, notes = METRICS_OF[kind], list[str]()
    if kind == "classification":
        ordered = Counter(words).most_common()
        (frequent, most), (rare, least) = ordered[0], ordered[-1]
        if len(ordered) == 2:
            metrics = (*metrics, "f1")
        if main is None and most > BALANCED_RATIO * least:
            main = "macro_f1"
            notes.append(
                f"scored by macro F1, as label {quoted(frequent)} is {most / least:.3g} times as "
                f"frequent as {quoted(rare)}; --metric chooses another"
            )
    if main is not None and main not in metrics:
        two = "f1 is of one of two classes; " if main == "f1" else ""
        raise TaskError(f"--metric {main} does not fit: {two}give one of {', '.join(metrics)}")
    return tuple(sorted(metrics, key=lambda metric: metric != main)), notes
