"""From the trials of one model on one task to the number in a table.

The protocol of TUPE, Sec. 4.1: each learning rate is tried with several seeds, the median over the
seeds is the score of the rate, and the best rate is the score of the model. A seed that diverged
counts as worse than any score, so that an unstable rate is not mistaken for a good one. A seed that
failed, for example for lack of memory, says nothing about the model and is left out.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from finetune.results.result import Scores
from finetune.results.sweep_results import EndedTrial
from finetune.tasks.suite import AverageRule

DIVERGED = -math.inf


class RateScores(NamedTuple):
    """Scores of one model on one task at one learning rate."""

    learning_rate: float | None  # None: the majority class, without training
    finished: list[dict[str, float]]  # for each finished seed: development set -> score
    metrics: list[Scores]  # for each finished seed
    num_diverged: int
    num_requested: int  # seeds

    def of_metric(self, metric: str) -> "RateScores":
        """Return these seeds with one metric as their score."""
        scores = [
            {split: found[metric] for split, found in seed.items() if metric in found}
            for seed in self.metrics
        ]
        return self._replace(finished=scores)

    def scores(self, split: str | None = None) -> list[float]:
        """Return the finished seeds' scores on one development set, or their mean over all."""
        if split is None:
            return [statistics.fmean(scores.values()) for scores in self.finished]
        return [scores[split] for scores in self.finished if split in scores]

    def median(self, split: str | None = None) -> float | None:
        """Return the median over the seeds, possibly `DIVERGED`; None: there is no score."""
        scores = self.scores(split)
        if self.finished and not scores:
            return None
        scores += [DIVERGED] * self.num_diverged
        return statistics.median(scores) if scores else None


def score(task: str, metrics: dict[str, float], rule: AverageRule) -> float:
    """Return one number for the metrics of a development set.

    A task that the average is not over counts by its first metric.
    """
    values = list(metrics.values())
    return statistics.fmean(values) if rule.takes_mean(task) else values[0]


def by_rate(trials: Iterable[EndedTrial]) -> dict[float, list[EndedTrial]]:
    """Return trials by their learning rate, the lowest first."""
    found: dict[float, list[EndedTrial]] = {}
    for trial in sorted(trials, key=lambda trial: trial.result.learning_rate):
        found.setdefault(trial.result.learning_rate, []).append(trial)
    return found


def rate_scores(
    rate: float, trials: Sequence[EndedTrial], num_requested: int, rule: AverageRule
) -> RateScores:
    """Return the scores of trials that differ in the seed only."""
    results = [trial.result for trial in trials]
    finished = [result for result in results if result.status == "finished"]
    return RateScores(
        rate,
        [
            {split: score(r.task, metrics, rule) for split, metrics in r.scores.items()}
            for r in finished
        ],
        [result.scores for result in finished],
        sum(result.status == "diverged" for result in results),
        num_requested,
    )


def best_rate(rates: Sequence[RateScores]) -> RateScores:
    """Return the rate with the best median over all development sets; of equals the first.

    A rate at which every seed failed is the lowest.
    """
    medians = [rate.median() for rate in rates]
    ranks = [(median is not None, median or 0.0) for median in medians]
    return rates[ranks.index(max(ranks))]
