"""Remarks on a table of scores: what is missing, failed or not comparable."""

from collections.abc import Sequence
from typing import Any

from finetune.report.score_table import ScoreTable, num_seeds_requested
from finetune.results.sweep_results import SweepResults, TableRow
from pretrain.reports.words import counted


def notes(table: ScoreTable, results: SweepResults) -> list[str]:
    """Return a line for everything that is missing, failed, or differs between trials."""
    return [
        *_remarkable(table, results),
        *_not_run(table, results),
        *_single_seeds(table, results),
        *_different_rates(table, results),
        *_different_trials(results),
    ]


def _remarkable(table: ScoreTable, results: SweepResults) -> list[str]:
    """Return a line per model and task on which trials failed, diverged or have a remark."""
    groups: dict[tuple[str, str], dict[float, list[int]]] = {}
    for trial in sorted(results.trials, key=lambda trial: table.every_row.index(trial.row)):
        result = trial.result
        if result.status != "finished" or result.reason:
            what = " ".join(filter(None, [result.status, result.reason and f"({result.reason})"]))
            where = f"{_named(table, trial.row)} on {result.task}"
            rates = groups.setdefault((where, what), {})
            rates.setdefault(result.learning_rate, []).append(result.seed)
    return [
        f"{where} {what}: "
        + "; ".join(f"{_seeds(seeds)} at {rate:g}" for rate, seeds in sorted(rates.items()))
        for (where, what), rates in groups.items()
    ]


def _not_run(table: ScoreTable, results: SweepResults) -> list[str]:
    """Return a line per model and task whose row lacks trials, which other rows may have.

    Nobody need have asked for them: a sweep records the models, tasks, rates and seeds of all its
    commands, and any of these may have been combined with some of the others only.
    """
    over = {
        (trial.row, trial.result.task, trial.result.learning_rate, trial.result.seed)
        for trial in results.trials
    }
    requested = dict.fromkeys(
        (row, task, rate, seed)
        for request in results.requested
        for row in request.rows
        for task in request.tasks
        for rate in request.learning_rates
        for seed in request.seeds
    )
    groups: dict[tuple[str, str], list[bool]] = {}
    for trial in requested:
        row, task, _, _ = trial
        groups.setdefault((_named(table, row), task), []).append(trial in over)
    return [
        f"{model} on {task}: {states.count(False)} of {counted(len(states), 'trial')} "
        f"{'was' if states.count(False) == 1 else 'were'} not run"
        for (model, task), states in groups.items()
        if not all(states)
    ]


def _single_seeds(table: ScoreTable, results: SweepResults) -> list[str]:
    tasks = [
        task
        for task in dict.fromkeys(column.task for column in table.columns)
        if any(
            num_seeds_requested(results, row, task) == 1
            for row in table.every_row
            if (row, task) in table.rates
        )
    ]
    if not tasks:
        return []
    return [f"one seed only on {', '.join(tasks)}: the spread over seeds is unknown"]


def _different_rates(table: ScoreTable, results: SweepResults) -> list[str]:
    """Return a line per task on which one model could choose among more rates than another."""
    rates: dict[str, dict[TableRow, set[float]]] = {}
    for request in results.requested:
        for task in request.tasks:
            for row in request.rows:
                rates.setdefault(task, {}).setdefault(row, set()).update(request.learning_rates)
    return [
        f"models on {task} were tuned over different learning rates: "
        + "; ".join(
            f"{_named(table, row)} {', '.join(f'{rate:g}' for rate in sorted(found))}"
            for row, found in by_row.items()
        )
        for task, by_row in rates.items()
        if len({frozenset(found) for found in by_row.values()}) > 1
    ]


def _different_trials(results: SweepResults) -> list[str]:
    """Return a line per task whose trials trained for unlike epochs, or in unlike precisions."""
    kinds: dict[tuple[str, str], set[Any]] = {}
    for trial in results.trials:
        found = trial.result
        kinds.setdefault((found.task, "numbers of epochs"), set()).add(found.epochs)
        if found.precision is not None and found.status != "failed":
            kinds.setdefault((found.task, "precisions"), set()).add(found.precision)
    return [
        f"trials on {task} have different {kind}: {', '.join(map(str, sorted(values)))}"
        for (task, kind), values in kinds.items()
        if len(values) > 1
    ]


def _named(table: ScoreTable, row: TableRow) -> str:
    at = "" if row.step is None else f" (step {row.step:,})"
    return table.label(row) + at


def _seeds(seeds: Sequence[int]) -> str:
    listed = ", ".join(map(str, sorted(seeds)))
    return f"seed {listed}" if len(seeds) == 1 else f"seeds {listed}"
