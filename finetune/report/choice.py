"""The trial that stands for a model on a task: its model is kept, its predictions are submitted."""

from typing import NamedTuple

from finetune.report.score_table import ScoreTable
from finetune.report.scores import rate_scores
from finetune.results.sweep_results import EndedTrial, SweepResults, TableRow


class Choice(NamedTuple):
    """The chosen trial, or why there is none."""

    trial: EndedTrial | None
    reason: str = ""


def chosen_trial(table: ScoreTable, results: SweepResults, row: TableRow, task: str) -> Choice:
    """Return the trial at the best learning rate whose development score is the median.

    Of an even number of seeds it is the lower one of the middle two. A diverged seed is the lowest.
    """
    best = table.best(row, task)
    assert best is not None
    rate = best.learning_rate
    ranked = sorted(
        (rate_scores(0.0, [trial], 1, table.rule).median(), trial.result.seed, trial)
        for trial in results.trials
        if (trial.row, trial.result.task, trial.result.learning_rate) == (row, task, rate)
        and trial.result.status != "failed"
    )
    if not ranked:
        return Choice(None, "every seed failed")
    trial = ranked[(len(ranked) - 1) // 2][2]
    if trial.result.status == "diverged":
        return Choice(None, f"half or more of the seeds diverged at the best rate, {rate:g}")
    return Choice(trial)
