"""What a reader must know before believing a table of scores."""

from collections.abc import Sequence

from finetune.records import Records, Row
from finetune.score_table import ScoreTable, num_seeds_asked


def notes(table: ScoreTable, records: Records) -> list[str]:
    """Return a line for everything that is missing, went wrong, or is not alike."""
    return [
        *_unsuccessful(table, records),
        *_unfinished(table, records),
        *_single_seeds(table, records),
        *_different_epochs(records),
    ]


def _unsuccessful(table: ScoreTable, records: Records) -> list[str]:
    """Return a line for the failed and diverged seeds of each model, task and learning rate."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for run in records.runs:
        result = run.result
        if result.status != "finished":
            what = f"{_named(table, run.row)} on {result.task} at {result.learning_rate:g}"
            groups.setdefault((what, result.status, result.reason), []).append(result.seed)
    return [
        f"{what}: {_seeds(seeds)} {status}" + (f" ({reason})" if reason else "")
        for (what, status, reason), seeds in groups.items()
    ]


def _unfinished(table: ScoreTable, records: Records) -> list[str]:
    """Return a line for each model and task of which runs were asked for and are not over."""
    over = {
        (run.row, run.result.task, run.result.learning_rate, run.result.seed)
        for run in records.runs
    }
    asked = {
        (model.row, task, rate, seed)
        for grid in records.asked
        for model in grid.models
        for task in grid.tasks
        for rate in grid.learning_rates
        for seed in grid.seeds
    }
    groups: dict[tuple[str, str], list[bool]] = {}
    for run in sorted(asked, key=str):
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
