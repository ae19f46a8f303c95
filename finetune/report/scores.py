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
SCORE = ""  # beside the metrics of a development set: the number that counts


class RateScores(NamedTuple):
    """Scores of one model on one task at one learning rate."""

    learning_rate: float | None  # None: the majority class, without training
    finished: list[Scores]  # for each finished seed; `SCORE` is one of the metrics
    num_diverged: int
    num_requested: int  # seeds

    def scores(self, split: str | None = None, metric: str = SCORE) -> list[float]:
        """Return the finished seeds' scores on one development set, or their mean over all."""
        if split is None:
            return [
                statistics.fmean(metrics[metric] for metrics in seed.values())
                for seed in self.finished
            ]
        return [seed[split][metric] for seed in self.finished if metric in seed.get(split, {})]

    def median(self, split: str | None = None, metric: str = SCORE) -> float | None:
        """Return the median over the seeds, possibly `DIVERGED`; None: there is no score."""
        scores = self.scores(split, metric)
        if self.finished and not scores:
            return None
        scores += [DIVERGED] * self.num_diverged
        return statistics.median(scores) if scores else None


def with_score(task: str, scores: Scores, rule: AverageRule) -> Scores:
    """Return scores with the number that counts of each development set.

    Of a task that the average is not over it is the first metric.
    """
    takes_mean = rule.takes_mean(task)
    return {
        split: {
            **metrics,
            SCORE: statistics.fmean(metrics.values()) if takes_mean else [*metrics.values()][0],
        }
        for split, metrics in scores.items()
    }


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
    return RateScores(
        rate,
        [with_score(one.task, one.scores, rule) for one in results if one.status == "finished"],
        sum(one.status == "diverged" for one in results),
        num_requested,
    )


def best_rate(rates: Sequence[RateScores]) -> RateScores:
    """Return the rate with the best median over all development sets; of equals the first.

    A rate at which every seed failed is the lowest.
    """
    medians = [rate.median() for rate in rates]
    ranks = [(median is not None, median or 0.0) for median in medians]
    return rates[ranks.index(max(ranks))]


def chosen_trial(trials: Sequence[EndedTrial], rule: AverageRule) -> EndedTrial | None:
    """Return the trial at the best learning rate whose development score is the median.

    Its model is kept, its predictions are submitted. Of an even number of seeds it is the lower one
    of the middle two. A diverged seed is the lowest. None: it diverged, or every seed failed.

    Args:
        trials: all those of one model on one task that are over, one or more.
        rule: of the table, which says what the score of a task is.
    """
    groups = by_rate(trials)
    rates = [rate_scores(rate, same, len(same), rule) for rate, same in groups.items()]
    rate = best_rate(rates).learning_rate
    assert rate is not None
    ranked = sorted(
        (rate_scores(rate, [trial], 1, rule).median(), trial.result.seed, trial)
        for trial in groups[rate]
        if trial.result.status != "failed"
    )
    trial = ranked[(len(ranked) - 1) // 2][2] if ranked else None
    return None if trial is None or trial.result.status == "diverged" else trial
