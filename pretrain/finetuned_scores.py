"""What fine-tuning of a run gave, as rows of its model card.

Fine-tuning depends on pre-training and not the other way round: its results are read as JSON.
"""

import statistics
from collections import defaultdict
from pathlib import Path

from pydantic import BaseModel, ValidationError

from pretrain.config import ConfigError

FOLDER = "finetune"  # in the run folder
HEADERS = ["protocol", "task", "split", "metric", "score", "seeds", "learning rate"]


class _Result(BaseModel):
    """The part of a result.json of fine-tuning that a model card shows."""

    step: int | None
    pretrained: bool
    task: str
    protocol: str
    learning_rate: float
    status: str
    scores: dict[str, dict[str, float]]

    @property
    def first_score(self) -> float:
        return next(iter(next(iter(self.scores.values())).values()))


def score_rows(run: Path, step: int | None) -> list[list[str]]:
    """Return a row per protocol, task, split and metric, of the finished runs from this step.

    Raises:
        ConfigError: a result is damaged.
    """
    by_task: dict[tuple[str, str], dict[float, list[_Result]]] = defaultdict(dict)
    for file in sorted((run / FOLDER).glob("*/**/lr_*/seed_*/result.json")):
        result = _read(file)
        if (result.step, result.pretrained, result.status) == (step, True, "finished"):
            rates = by_task[result.protocol, result.task]
            rates.setdefault(result.learning_rate, []).append(result)
    rows = []
    for (protocol, task), rates in sorted(by_task.items()):
        best = max(rates, key=lambda rate: statistics.median(r.first_score for r in rates[rate]))
        results = rates[best]
        for split, metrics in results[0].scores.items():
            for metric in metrics:
                median = statistics.median(result.scores[split][metric] for result in results)
                score, seeds = f"{100 * median:.1f}", str(len(results))
                rows.append([protocol, task, split, metric, score, seeds, f"{best:g}"])
    return rows


def _read(file: Path) -> _Result:
    try:
        return _Result.model_validate_json(file.read_text(encoding="utf-8"))
    except (ValidationError, UnicodeDecodeError):
        raise ConfigError(f"{file} is damaged; remove it, and repeat that run") from None
