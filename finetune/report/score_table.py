"""The scores of all models on all tasks: from trials to numbers, and these as a table.

The protocol of TUPE, Sec. 4.1: each learning rate is tried with several seeds, the median over the
seeds is the score of the rate, and the best rate is the score of the model. A seed that diverged
counts as worse than any score, so that an unstable rate is not mistaken for a good one. A seed that
failed, for example for lack of memory, says nothing about the model and is left out.
"""

import itertools
import math
import os
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import NamedTuple

from finetune.results.result import Scores, TableRow
from finetune.results.sweep_results import EndedTrial, SweepResults
from finetune.tasks.catalog import SUITES, known_tasks, suite_of
from finetune.tasks.suite import AverageRule
from finetune.tasks.task import split_title
from pretrain.config.errors import ConfigError

DIVERGED = -math.inf
SCORE = ""  # beside the metrics of a development set: the number that counts
UNTRAINED = ", not pre-trained"
MAJORITY = TableRow("majority class", "", None, False)


class RateScores(NamedTuple):
    """Scores of one model on one task at one learning rate."""

    learning_rate: float | None  # None: the majority class, without training
    finished: list[Scores]  # for each finished seed; `SCORE` is one of the metrics
    num_diverged: int
    num_requested: int  # seeds

    def scores(self, split: str | None = None, metric: str = SCORE) -> list[float]:
        """Return the finished seeds' scores on one development set, or their mean over all."""
        if split is None:
            return [statistics.fmean(s[metric] for s in seed.values()) for seed in self.finished]
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


def scores_by_rate(
    trials: Sequence[EndedTrial], num_requested: int, rule: AverageRule
) -> list[RateScores]:
    """Return the scores of one model on one task at each learning rate, the lowest first."""
    found = []
    for rate in sorted({trial.result.learning_rate for trial in trials}):
        results = [trial.result for trial in trials if trial.result.learning_rate == rate]
        scores = [with_score(one.task, one.scores, rule) for one in results if one.scores]
        num_diverged = sum(one.status == "diverged" for one in results)
        found.append(RateScores(rate, scores, num_diverged, num_requested))
    return found


def best_rate(rates: Sequence[RateScores]) -> RateScores:
    """Return the rate with the best median over all development sets; of equals the first.

    A rate at which every seed failed is the lowest.
    """
    medians = [rate.median() for rate in rates]
    ranks = [(median is not None, median or 0.0) for median in medians]
    return rates[ranks.index(max(ranks))]


def chosen_trial(trials: Sequence[EndedTrial], rule: AverageRule) -> EndedTrial | None:
    """Return the trial at the best learning rate whose development score is the median.

    Its model is kept. Of an even number of seeds it is the lower one
    of the middle two. A diverged seed is the lowest. None: it diverged, or every seed failed.

    Args:
        trials: all those of one model on one task that are over, one or more.
        rule: of the table, which says what the score of a task is.
    """
    rate = best_rate(scores_by_rate(trials, 0, rule)).learning_rate
    ranked = sorted(
        (scores_by_rate([trial], 1, rule)[0].median(), trial.result.seed, trial)
        for trial in trials
        if trial.result.learning_rate == rate and trial.result.status != "failed"
    )
    trial = ranked[(len(ranked) - 1) // 2][2] if ranked else None
    return None if trial is None or trial.result.status == "diverged" else trial


Rates = dict[tuple[TableRow, str], list[RateScores]]  # by row and task


class Column(NamedTuple):
    """One development set of one task."""

    task: str
    split: str

    @property
    def title(self) -> str:
        """Return its name in papers."""
        task = known_tasks().get(self.task)
        return task.title(self.split) if task else split_title(self.task, self.split)


@dataclass(frozen=True)
class ScoreTable:
    """Scores by row and task, and which of the rows are shown."""

    protocol: str
    rule: AverageRule
    columns: list[Column]
    rows: list[TableRow]  # those shown: majority class, not pre-trained, then the models
    every_row: list[TableRow]  # including the steps that are not shown
    rates: Rates  # by learning rate, ascending

    def best(self, row: TableRow, task: str) -> RateScores | None:
        """Return the scores at the best learning rate; None: there is no trial."""
        rates = self.rates.get((row, task))
        return best_rate(rates) if rates else None

    def median(self, row: TableRow, column: Column) -> float | None:
        """Return the median score, as a fraction of 1; see `RateScores.median`."""
        best = self.best(row, column.task)
        return None if best is None else best.median(column.split)

    @property
    def averaged(self) -> list[Column]:
        """Return the columns that the average is over; none where they are of one task."""
        columns = [column for column in self.columns if column.task in self.rule.tasks]
        return columns if len({column.task for column in columns}) > 1 else []

    def metrics(self, task: str) -> list[str]:
        """Return the metrics that a task was scored by, the main one first."""
        seeds = [
            seed
            for (_, other), rates in self.rates.items()
            for rate in rates
            for seed in rate.finished
            if other == task
        ]
        names = (name for seed in seeds for metrics in seed.values() for name in metrics)
        return list(dict.fromkeys(name for name in names if name != SCORE))

    def lacking(self, row: TableRow) -> list[str]:
        """Return the titles of the averaged columns in which the row has no score."""
        return [c.title for c in self.averaged if self.median(row, c) in (None, DIVERGED)]

    def average(self, row: TableRow) -> float | None:
        """Return the mean over the tasks, as a fraction of 1; None: the row lacks some, or all."""
        if not self.averaged or None in [self.median(row, one) for one in self.averaged]:
            return None
        groups: dict[str, list[float]] = {}
        for column in self.averaged:
            group = column.task if self.rule.unit == "task" else column.title
            groups.setdefault(group, []).append(self.median(row, column) or 0.0)
        return statistics.fmean(map(statistics.fmean, groups.values()))

    def label(self, row: TableRow) -> str:
        """Return the name of the row; models of one name are distinguished by their folders."""
        origins = {other.origin for other in self.every_row if other.model == row.model}
        place = ""
        if len(origins) > 1:
            shared = os.path.commonprefix([PurePath(origin).parts[:-1] for origin in origins])
            place = f" ({PurePath(*PurePath(row.origin).parts[len(shared) :])})"
        return row.model + place + ("" if row.pretrained or row == MAJORITY else UNTRAINED)


def score_table(
    results: SweepResults, average: str | None = None, step: str = "newest"
) -> ScoreTable:
    """Return the table of the results.

    Args:
        results: of at least one trial.
        average: name of a rule of a suite; None: the first rule of the first suite with results.
        step: of pre-training: the "newest" of each model, "all", or a number.

    Raises:
        ConfigError: no model has that step; a file of a run is damaged.
    """
    tasks = _in_order(trial.result.task for trial in results.trials)
    rule = average_rules()[average] if average is not None else default_rule(tasks)
    # Models without pre-training first; then in the given order, early steps first.
    places = {trial.row[:2]: -n for n, trial in enumerate(reversed(results.trials))}
    every_row = sorted(
        {trial.row for trial in results.trials},
        key=lambda row: (row.pretrained, places[row[:2]], row.step or 0),
    )
    shown, columns = _shown(every_row, step), list[Column]()
    for task in tasks:
        scored = [trial.result.scores for trial in results.trials if trial.result.task == task]
        splits = {split for one in [*scored, results.majority.get(task, {})] for split in one}
        known = known_tasks().get(task)
        development = sorted(splits) or (known.development if known else ("dev",))
        columns += [Column(task, split) for split in development]
    if any(task in results.majority for task in tasks):
        shown.insert(0, MAJORITY)
    return ScoreTable(
        protocol=results.trials[0].result.protocol,
        rule=rule,
        columns=columns,
        rows=shown,
        every_row=every_row,
        rates=_rates(results, every_row, tasks, rule),
    )


def average_rules() -> dict[str, AverageRule]:
    """Return the rules of all suites by name."""
    return {name: rule for suite in SUITES.values() for name, rule in suite.averages.items()}


def default_rule(tasks: Iterable[str]) -> AverageRule:
    """Return the rule of a table with these tasks for which none was asked."""
    suites = [suite for task in _in_order(tasks) if (suite := suite_of(task))]
    return next(iter((suites or list(SUITES.values()))[0].averages.values()))


def _in_order(tasks: Iterable[str]) -> list[str]:
    """Return each task once: those of suites in their order, then the user's own."""
    found, known = dict.fromkeys(tasks), known_tasks()
    return [task for task in known if task in found] + [task for task in found if task not in known]


def _rates(
    results: SweepResults, rows: Sequence[TableRow], tasks: Sequence[str], rule: AverageRule
) -> Rates:
    rates: Rates = {}
    for row, task in itertools.product(rows, tasks):
        trials = [t for t in results.trials if (t.row, t.result.task) == (row, task)]
        # Without a record, as many seeds were requested as there are.
        seeds = {trial.result.seed for trial in trials}
        for request in results.requested:
            rows_asked = [model.row for model in request.models]
            seeds.update(request.seeds if task in request.tasks and row in rows_asked else [])
        if trials:
            rates[row, task] = scores_by_rate(trials, len(seeds), rule)
    for task, scores in results.majority.items():
        rates[MAJORITY, task] = [RateScores(None, [with_score(task, scores, rule)], 0, 1)]
    return rates


def _shown(rows: Sequence[TableRow], step: str) -> list[TableRow]:
    """Return the rows of the requested steps, and all rows without pre-training."""
    if step == "all":
        return list(rows)
    if step == "newest":
        newest = {row[:2]: row for row in rows if row.pretrained}  # rows ascend: the last one stays
        return [row for row in rows if not row.pretrained or newest[row[:2]] == row]
    steps = sorted({row.step for row in rows if row.step is not None})
    if not step.isdecimal() or int(step) not in steps:
        known = ", ".join(map(str, steps)) or "none, no result has a step"
        raise ConfigError(f"--checkpoint {step}: give newest, all or a known step: {known}")
    return [row for row in rows if not row.pretrained or row.step == int(step)]
