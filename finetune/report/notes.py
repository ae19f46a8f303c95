"""Warnings below a table of scores: what is missing, failed or not comparable."""

import itertools

from finetune.report.score_table import ScoreTable
from finetune.results.sweep_results import EndedTrial, SweepResults, TableRow


def notes(table: ScoreTable, results: SweepResults) -> list[str]:
    """Return a line for everything that is missing, failed, or differs between trials."""
    lines = _remarkable(table, results)
    requested = {trial for request in results.requested for trial in itertools.product(*request)}
    over = {(t.row, t.result.task, t.result.learning_rate, t.result.seed) for t in results.trials}
    if missing := requested - over:
        lines.append(f"{len(missing)} of {len(requested)} trials not run")
    doubtful: dict[str, list[str]] = {}
    for task in dict.fromkeys(column.task for column in table.columns):
        found = {
            row: table.rates[row, task] for row in table.every_row if (row, task) in table.rates
        }
        if any(rates[0].num_requested == 1 for rates in found.values()):
            doubtful.setdefault("one seed", []).append(task)
        tuned: dict[TableRow, set[float]] = {}
        for row, _, rate, _ in (trial for trial in requested if trial[1] == task):
            tuned.setdefault(row, set()).add(rate)
        if len(set(map(frozenset, tuned.values()))) > 1:
            doubtful.setdefault("different learning rates", []).append(task)
        results_of = [trial.result for trial in results.trials if trial.result.task == task]
        if len({result.precision for result in results_of} - {None}) > 1:
            doubtful.setdefault("different precisions", []).append(task)
    return [*lines, *(f"{what}: {', '.join(tasks)}" for what, tasks in doubtful.items())]


def _remarkable(table: ScoreTable, results: SweepResults) -> list[str]:
    """Return a line per model, task and status that is not finished or has a remark."""
    groups: dict[tuple[str, str, str], list[EndedTrial]] = {}
    for trial in sorted(results.trials, key=lambda trial: table.every_row.index(trial.row)):
        row, result = trial.row, trial.result
        if result.status != "finished" or result.reason:
            name = table.label(row) + ("" if row.step is None else f" step {row.step:,}")
            groups.setdefault((name, result.task, result.status), []).append(trial)
    return [
        f"{name} on {task}: {len(trials)} {status}, the first at {first.learning_rate:g}, seed "
        f"{first.seed}" + (f": {first.reason}" if first.reason else "")
        for (name, task, status), trials in groups.items()
        for first in [trials[0].result]
    ]
