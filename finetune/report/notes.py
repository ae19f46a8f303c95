"""What a reader must know before believing a table of scores."""

from collections.abc import Sequence

from finetune.report.score_table import ScoreTable, num_seeds_asked
from finetune.results.records import Records, Row


def notes(table: ScoreTable, records: Records) -> list[str]:
    """Return a line for everything that is missing, went wrong, or is not alike."""
    return [
        *_remarkable(table, records),
        *_unfinished(table, records),
        *_single_seeds(table, records),
        *_different_epochs(records),
    ]


def _remarkable(table: ScoreTable, records: Records) -> list[str]:
    """Return a line for what failed, diverged or was strange, of each model on each task."""
    groups: dict[tuple[str, str], dict[float, list[int]]] = {}
    for run in sorted(records.runs, key=lambda run: table.every_row.index(run.row)):
        result = run.result
        if result.status != "finished" or result.reason:
            what = " ".join(filter(None, [result.status, result.reason and f"({result.reason})"]))
            where = f"{_named(table, run.row)} on {result.task}"
            rates = groups.setdefault((where, what), {})
            rates.setdefault(result.learning_rate, []).append(result.seed)
    return [
        f"{where} {what}: "
        + "; ".join(f"{_seeds(seeds)} at {rate:g}" for rate, seeds in sorted(rates.items()))
        for (where, what), rates in groups.items()
    ]


def _unfinished(table: ScoreTable, records: Records) -> list[str]:
    """Return a line for each model and task of which runs were asked for and are not over."""
    over = {
        (run.row, run.result.task, run.result.learning_rate, run.result.seed)
        for run in records.runs
    }
    asked = dict.fromkeys(
        (row, task, rate, seed)
        for grid in records.asked
        for row in grid.rows
        for task in grid.tasks
        for rate in grid.learning_rates
        for seed in grid.seeds
    )
    groups: dict[tuple[str, str], list[bool]] = {}
    for run in asked:
        groups.setdefault((_named(table, run[0]), run[1]), []).append(run in over)
    return [
        f"{model} on {task}: {states.count(False)} of {len(states)} runs are not over"
        for (model, task), states in groups.items()
        if not all(states)
    ]


def _single_seeds(table: ScoreTable, records: Records) -> list[str]:
    tasks = [
        task
        for task in dict.fromkeys(column.task for column in table.columns)
        if any(
            num_seeds_asked(records, row, task) == 1
            for row in table.every_row
            if (row, task) in table.cells
        )
    ]
    if not tasks:
        return []
    return [f"one seed only on {', '.join(tasks)}: what another seed changes is not known"]


def _different_epochs(records: Records) -> list[str]:
    epochs: dict[str, set[int]] = {}
    for run in records.runs:
        epochs.setdefault(run.result.task, set()).add(run.result.epochs)
    return [
        f"the runs on {task} have different numbers of epochs: {', '.join(map(str, sorted(found)))}"
        for task, found in epochs.items()
        if len(found) > 1
    ]


def _named(table: ScoreTable, row: Row) -> str:
    at = "" if row.step is None else f" (step {row.step:,})"
    return table.label(row) + at


def _seeds(seeds: Sequence[int]) -> str:
    listed = ", ".join(map(str, sorted(seeds)))
    return f"seed {listed}" if len(seeds) == 1 else f"seeds {listed}"
