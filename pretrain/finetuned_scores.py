"""What fine-tuning of a run gave, as rows of its model card.

Fine-tuning depends on pre-training and not the other way round: its results are read as JSON.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    ValidationError,
    model_validator,
)

from pretrain.config import ConfigError

FOLDER = "finetune"  # in the run folder
HEADERS = ["protocol", "task", "split", "metric", "score", "seeds", "learning rate"]


class _Result(BaseModel):
    """The part of a result.json of fine-tuning that a model card shows."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    step: int | None
    pretrained: bool
    task: str
    protocol: str
    learning_rate: float
    status: str
    scores: dict[str, Annotated[dict[str, FiniteFloat], Field(min_length=1)]]

    @model_validator(mode="after")
    def _check_scores(self) -> "_Result":
        if self.status == "finished" and not self.scores:
            raise ValueError("a run that is finished has scores")
        return self

    @property
    def rank(self) -> float:
        """Return the first metric in the mean of the development sets; a diverged seed is worst."""
        first = [next(iter(metrics.values())) for metrics in self.scores.values()]
        return statistics.fmean(first) if self.status == "finished" else -math.inf


def score_rows(run: Path, step: int | None) -> list[list[str]]:
    """Return a row per protocol, task, split and metric, of the runs from this step.

    The median over the seeds at the learning rate whose median is best, as TUPE Sec. 4.1 and
    `python -m finetune table --average tupe` have it; a diverged seed is worse than any score.

    Raises:
        ConfigError: a result is damaged.
    """
    by_task: dict[tuple[str, str], dict[float, list[_Result]]] = defaultdict(dict)
    for file in sorted((run / FOLDER).glob("*/**/lr_*/seed_*/result.json")):
        result = _read(file)
        if (result.step, result.pretrained) == (step, True) and result.status != "failed":
            rates = by_task[result.protocol, result.task]
            rates.setdefault(result.learning_rate, []).append(result)
    rows = []
    for (protocol, task), rates in sorted(by_task.items()):
        best = max(rates, key=lambda rate: statistics.median(r.rank for r in rates[rate]))
        rows += [[protocol, task, *row, f"{best:g}"] for row in _medians(rates[best])]
    return rows


def _medians(results: Sequence[_Result]) -> Iterator[list[str]]:
    """Yield split, metric, median and the number of seeds that finished."""
    finished = [result for result in results if result.status == "finished"]
    diverged = [-math.inf] * (len(results) - len(finished))
    for split, metrics in finished[0].scores.items() if finished else ():
        for metric in metrics:
            scores = [
                result.scores[split][metric]
                for result in finished
                if metric in result.scores.get(split, {})
            ]
            median = statistics.median(scores + diverged)
            shown = "diverged" if median == -math.inf else f"{100 * median:.1f}"
            yield [split, metric, shown, str(len(finished))]


def _read(file: Path) -> _Result:
    try:
        return _Result.model_validate_json(file.read_bytes())
    except ValidationError:
        raise ConfigError(f"{file} is damaged; remove it, and repeat that run") from None
