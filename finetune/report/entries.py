"""The cells of a table of scores, as they are printed, written and shown on pages."""

from collections.abc import Sequence
from typing import NamedTuple

from finetune.report.axes import STEPS
from finetune.report.score_table import Column, ScoreTable
from finetune.report.scores import DIVERGED, RateScores
from finetune.results.sweep_results import TableRow
from finetune.tasks.catalog import known_tasks
from pretrain.reports.words import amount, counted


class Entry(NamedTuple):
    """The content of one place of the table."""

    value: str
    spread: str = ""  # over the seeds
    remark: str = ""  # on missing seeds or tasks
    best: bool = False
    parts: str = ""  # the metrics that the value is made from, such as 88.5/91.2

    @property
    def below(self) -> list[str]:
        """Return what stands below the value."""
        return [text for text in (self.parts, self.spread, self.remark) if text]


def headers(table: ScoreTable) -> list[str]:
    """Return the names of the columns of `entries`."""
    average = ["average"] if table.has_average else []
    return [*headers_of_rows(table), *(column.title for column in table.columns), *average]


def headers_of_rows(table: ScoreTable) -> list[str]:
    """Return the names of the columns that say what a row is."""
    steps = ["steps"] if any(row.step is not None for row in table.rows) else []
    return ["model", *steps, *(["FLOPs"] if has_costs(table) else [])]


def entries(table: ScoreTable) -> list[list[Entry]]:
    """Return the rows of the table, x 100 with one decimal, the best of each column marked.

    Runs of an arm are not marked: the best of many is not comparable with a median.
    """
    rows = table.listed
    columns = [[Entry(table.label(row)) for row in rows]]
    if "steps" in headers_of_rows(table):
        columns.append([Entry(step_text(table, row)) for row in rows])
    if has_costs(table):
        costs = [table.cost(row) for row in rows]
        columns.append([Entry("" if c is None else amount(c, table.axis)) for c in costs])
    for column in table.columns:
        found = [_entry(table, row, column) for row in rows]
        columns.append(_marked(table, found, [table.median(row, column) for row in rows]))
    if table.has_average:
        averages = [table.average(row) for row in rows]
        columns.append(_marked(table, [_average(table, row) for row in rows], averages))
    return [list(row) for row in zip(*columns, strict=True)]


def has_costs(table: ScoreTable) -> bool:
    """Return whether the table has a column of them beside the steps."""
    return table.axis != STEPS and bool(table.costs)


def step_text(table: ScoreTable, row: TableRow) -> str:
    """Return the step as in papers, 300k or 1M, if it is a round number; of an arm the range."""
    steps = sorted({run.step for run in table.runs(row) if run.step is not None})
    return " - ".join(map(_step, steps if len(steps) < 2 else [steps[0], steps[-1]]))


def _step(step: int) -> str:
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if step and step % size == 0:
            return f"{step // size}{letter}"
    return f"{step:,}"


def _entry(table: ScoreTable, row: TableRow, column: Column) -> Entry:
    rate = table.best(row, column.task)
    if rate is None:
        return Entry("-")
    median, scores = rate.median(column.split), rate.scores(column.split)
    spread, requested, remark = _range(scores), rate.num_requested, ""
    if len(scores) < requested and (rate.learning_rate is not None or requested > 1):
        remark = f"{len(scores)} of {counted(requested, 'seed')}"
    if median is None:
        return Entry("-" if rate.finished else "failed", "", remark)
    if median == DIVERGED:
        return Entry("diverged", spread, remark)
    return Entry(_shown(median), spread, remark, parts=_parts(rate, column))


def _parts(rate: RateScores, column: Column) -> str:
    """Return the metrics of a suite's task that has several; a task of one's own has the main one.

    The others of the latter are in the CSV and in the figures.
    """
    task = known_tasks().get(column.task)
    metrics = task.metrics if task is not None and len(task.metrics) > 1 else ()
    found = [rate.of_metric(metric).median(column.split) for metric in metrics]
    if any(median is None or median == DIVERGED for median in found):
        return ""
    return "/".join(_shown(median) for median in found if median is not None)


def _average(table: ScoreTable, row: TableRow) -> Entry:
    average = table.average(row)
    if average is None:
        return Entry("-", "", f"lacks {', '.join(table.lacking(row))}")
    return Entry(_shown(average), _range(table.averages(row)))


def _range(scores: Sequence[float]) -> str:
    return f"{_shown(min(scores))} - {_shown(max(scores))}" if len(scores) > 1 else ""


def _shown(fraction: float) -> str:
    return f"{100 * fraction:.1f}"


def _marked(
    table: ScoreTable, found: Sequence[Entry], values: Sequence[float | None]
) -> list[Entry]:
    """Mark the entries with the highest value, several if they are equal as shown."""
    rounded = [
        DIVERGED if value is None or row in table.runs_of_arms else round(100 * value, 1)
        for row, value in zip(table.listed, values, strict=True)
    ]
    best = max(rounded)
    return [
        entry._replace(best=value == best > DIVERGED)
        for entry, value in zip(found, rounded, strict=True)
    ]
