"""From the runs of one model on one task to the number that a table shows.

The protocol of TUPE, Sec. 4.1: each learning rate is run with several seeds, the median over the
seeds counts for the rate, and the best rate counts for the model. A seed that diverged counts as
worse than any score, so that a rate which works now and then is not mistaken for a good one. A
seed that failed, as for want of memory, says nothing of the model and is left out.
"""

import math
import statistics
from collections.abc import Sequence
from typing import Literal, NamedTuple

from finetune.results.records import Run
from finetune.tasks.glue import GLUE

# How scores are counted: as GLUE does, or as the tables of TUPE do.
Counting = Literal["glue", "tupe"]

DIVERGED = -math.inf


class Cell(NamedTuple):
    """One model on one task at one learning rate."""

    learning_rate: float | None  # None: nothing was learned
    finished: list[dict[str, float]]  # for each finished seed: development set -> score
    num_diverged: int
    num_asked: int  # seeds

    def scores(self, split: str | None = None) -> list[float]:
        """Return what the finished seeds scored on one development set, or on all in the mean."""
        if split is None:
            return [statistics.fmean(scores.values()) for scores in self.finished]
        return [scores[split] for scores in self.finished if split in scores]

    def median(self, split: str | None = None) -> float | None:
        """Return the median over the seeds, `DIVERGED` possibly; None: there is no score."""
        scores = self.scores(split)
        if self.finished and not scores:
            return None
        scores += [DIVERGED] * self.num_diverged
        return statistics.median(scores) if scores else None


def score(task: str, metrics: dict[str, float], counting: Counting) -> float:
    """Return one number for the metrics of a development set.

    GLUE's score is the mean of the task's metrics (Wang et al. 2019). TUPE Sec. 4.1 reports the
    first: accuracy on MRPC and QQP, Pearson's correlation on STS-B. A task outside of GLUE counts
    by its first metric.
    """
    values = list(metrics.values())
    return statistics.fmean(values) if counting == "glue" and task in GLUE else values[0]


def run_scores(run: Run, counting: Counting) -> dict[str, float]:
    """Return the score of a run on each development set."""
    return {
        split: score(run.result.task, metrics, counting)
        for split, metrics in run.result.scores.items()
    }


def cell_at(rate: float, runs: Sequence[Run], num_asked: int, counting: Counting) -> Cell:
    """Return the cell of runs that differ in the seed only."""
    status = [run.result.status for run in runs]
    return Cell(
        rate,
        [run_scores(run, counting) for run in runs if run.result.status == "finished"],
        status.count("diverged"),
        num_asked,
    )


def best_cell(cells: Sequence[Cell]) -> Cell:
    """Return the cell with the best median over all development sets; of equals the first."""
    return max(cells, key=_rank)


def _rank(cell: Cell) -> tuple[bool, float]:
    """Return what orders learning rates; one at which every seed failed comes last."""
    median = cell.median()
    return (median is not None, 0.0 if median is None else median)
