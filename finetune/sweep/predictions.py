"""The files of a trial with its predictions of development and test sets."""

import json
from pathlib import Path

from data_prep.files.atomic import save_text
from finetune.results.result import predictions_file
from finetune.tasks.task import Task
from finetune.training.encoding import EncodedTask
from finetune.training.train import Outcome


def write_predictions(folder: Path, data: EncodedTask, outcome: Outcome) -> None:
    """Write what a trial predicted into its folder, a file for each split."""
    for name, predictions in outcome.predictions.items():
        split = (data.development | data.test)[name]
        expected: list[float | None] = [*split.labels] or [None] * len(predictions)
        rows = zip(split.identities, predictions, expected, strict=True)
        lines = [_predicted(data.task, *row) for row in rows]
        save_text(predictions_file(folder, name), json.dumps(lines) + "\n")


def _predicted(
    task: Task, identity: str, value: float, expected: float | None
) -> dict[str, str | float]:
    """Return a prediction as it is written; a class has its label too.

    Of a development set, what was right is written beside it.
    """
    is_class = task.kind == "classification"
    label = {"label": task.labels[int(value)]} if is_class else {}
    right = {}
    if expected is not None:
        right = {"expected": task.labels[int(expected)] if is_class else expected}
    return {"identity": identity, "prediction": value, **label, **right}
