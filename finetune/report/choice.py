"""The trial that stands for a model on a task: its model is kept, its predictions are submitted."""

from collections.abc import Sequence
from typing import NamedTuple

from finetune.report.scores import best_rate, by_rate, rate_scores
from finetune.results.sweep_results import EndedTrial
from finetune.tasks.suite import AverageRule


class Choice(NamedTuple):
    """The chosen trial, or why there is none."""

    trial: EndedTrial | None
    reason: str = ""


def chosen_trial(trials: Sequence[EndedTrial], rule: AverageRule) -> Choice:
    """Return the trial at the best learning rate whose development score is the median.

    Of an even number of seeds it is the lower one of the middle two. A diverged seed is the lowest.

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
    if not ranked:
        return Choice(None, "every seed failed")
    trial = ranked[(len(ranked) - 1) // 2][2]
    if trial.result.status == "diverged":
        return Choice(
            None, f"half or more of the seeds diverged at the best learning rate, {rate:g}"
        )
    return Choice(trial)
