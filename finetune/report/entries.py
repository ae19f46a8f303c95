"""The table of scores as it is printed, written and shown on pages, and its numbers."""

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any

from finetune.report.axes import STEPS
from finetune.report.caption import caption
from finetune.report.score_table import MAJORITY, Column, ScoreTable
from finetune.report.scores import DIVERGED, RateScores
from finetune.results.sweep_results import TableRow
from finetune.tasks.catalog import known_tasks
from finetune.tasks.metric_names import METRIC_NAMES
from pretrain.reports.report import Report
from pretrain.reports.table import Table
from pretrain.reports.words import amount, counted

OTHER_COLUMNS = ("model", "steps", "FLOPs", "average")


def report_of(table: ScoreTable, notes: Sequence[str]) -> Report:
    """Return what `tupelo finetune table` shows."""
    return Report(
        "", shown(table), notes, [line for row in table.listed for line in _records(table, row)]
    )


def shown(table: ScoreTable) -> Table:
    """Return the table, x 100 with one decimal, the best of each column marked.

    Below a median are the metrics that it is made from, the range over the seeds, and how many of
    them there are. Runs of an arm are not marked: the best of many is not comparable with a median.
    """
    rows = [_keys(table, row) for row in table.listed]
    keys, best = len(rows[0]), set()
    columns = [
        (
            # A task of one's own can be called anything.
            f"{column.title} (task)" if column.title in OTHER_COLUMNS else column.title,
            [_entry(table, row, column) for row in table.listed],
            [table.median(row, column) for row in table.listed],
        )
        for column in table.columns
    ]
    if table.has_average:
        averages = [table.average(row) for row in table.listed]
        columns.append(("average", [_average(table, row) for row in table.listed], averages))
    for title, texts, values in columns:
        best |= {(number, title) for number in _best(table, values)}
        for row, text in zip(rows, texts, strict=True):
            row[title] = text
    return Table("Scores of fine-tuning", rows, caption(table), keys=keys, best=best)


def rate_table(table: ScoreTable) -> Table:
    """Return the best learning rates."""
    tasks = list(dict.fromkeys(column.task for column in table.columns))
    rows = []
    for row in (row for row in table.rows if row != MAJORITY):
        found = [table.best(row, task) for task in tasks]
        rates = ["-" if rate is None else f"{rate.learning_rate:g}" for rate in found]
        names = {"model": table.label(row), "steps": _steps(table, row)}
        rows.append(names | dict(zip(tasks, rates, strict=True)))
    return Table("Best learning rates", rows)


def _keys(table: ScoreTable, row: TableRow) -> dict[str, str]:
    """Return the cells that say what a row is."""
    cells = {"model": table.label(row)}
    if any(other.step is not None for other in table.rows):
        cells["steps"] = _steps(table, row)
    if _has_costs(table):
        cost = table.cost(row)
        cells["FLOPs"] = "" if cost is None else amount(cost, table.axis)
    return cells


def _has_costs(table: ScoreTable) -> bool:
    """Return whether the table has a column of them beside the steps."""
    return table.axis != STEPS and bool(table.costs)


def _steps(table: ScoreTable, row: TableRow) -> str:
    """Return the step as in papers, 300k or 1M, if it is a round number; of an arm the range."""
    steps = sorted({run.step for run in table.runs(row) if run.step is not None})
    return " - ".join(map(_step, steps if len(steps) < 2 else [steps[0], steps[-1]]))


def _step(step: int) -> str:
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if step and step % size == 0:
            return f"{step // size}{letter}"
    return f"{step:,}"


def _entry(table: ScoreTable, row: TableRow, column: Column) -> str:
    rate = table.best(row, column.task)
    if rate is None:
        return "-"
    median, scores = rate.median(column.split), rate.scores(column.split)
    requested, remark = rate.num_requested, ""
    if len(scores) < requested and (rate.learning_rate is not None or requested > 1):
        remark = f"{len(scores)} of {counted(requested, 'seed')}"
    if median is None:
        lines = ["-" if rate.finished else "failed", remark]
    elif median == DIVERGED:
        lines = ["diverged", _range(scores), remark]
    else:
        lines = [_shown(median), _parts(rate, column), _range(scores), remark]
    return "\n".join(filter(None, lines))


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


def _average(table: ScoreTable, row: TableRow) -> str:
    average = table.average(row)
    if average is None:
        return f"-\nlacks {', '.join(table.lacking(row))}"
    return "\n".join(filter(None, [_shown(average), _range(table.averages(row))]))


def _range(scores: Sequence[float]) -> str:
    return f"{_shown(min(scores))} - {_shown(max(scores))}" if len(scores) > 1 else ""


def _shown(fraction: float) -> str:
    return f"{100 * fraction:.1f}"


def _best(table: ScoreTable, values: Sequence[float | None]) -> list[int]:
    """Return the rows with the highest value, several if they are equal as shown."""
    rounded = [
        DIVERGED if value is None or row in table.runs_of_arms else round(100 * value, 1)
        for row, value in zip(table.listed, values, strict=True)
    ]
    best = max(rounded)
    return [number for number, value in enumerate(rounded) if value == best > DIVERGED]


def _records(table: ScoreTable, row: TableRow) -> Iterator[dict[str, Any]]:
    """Yield the numbers of a row by column, x 100, six digits, and by metric if it has several."""
    arm = table.arm(row)
    before = {
        "model": table.label(row),
        "steps": row.step,
        **({table.axis: table.cost(row)} if _has_costs(table) else {}),
        "protocol": table.protocol,
    }
    after = {
        "arm": "" if arm is None else table.label(arm.row),
        "pretraining_seed": "" if arm is None else arm.seeds.get(row),
        "run": "" if arm and row == arm.row else PurePath(row.origin).name,
    }
    for column in table.columns:
        rate, metrics = table.best(row, column.task), table.metrics(column.task)
        if rate is None:
            continue
        several = metrics if len(metrics) > 1 else []
        main = "mean" if several and table.rule.takes_mean(column.task) else "".join(metrics[:1])
        named = {"column": column.title, "metric": main}
        yield before | named | _numbers(rate, column.split) | after
        for metric in several:
            title = f"{column.title} {METRIC_NAMES.get(metric, metric)}"
            named = {"column": title, "metric": metric}
            yield before | named | _numbers(rate.of_metric(metric), column.split) | after
    average, averages = table.average(row), table.averages(row)
    if table.has_average and average is not None:
        found = dict.fromkeys(("learning_rate", "seeds", "finished", "diverged"), "")
        yield (
            before
            | {"column": "average", "metric": ""}
            | _ends(average, averages if len(averages) > 1 else [])
            | found
            | after
        )


def _numbers(rate: RateScores, split: str) -> dict[str, Any]:
    return {
        **_ends(rate.median(split), rate.scores(split)),
        "learning_rate": "" if rate.learning_rate is None else f"{rate.learning_rate:g}",
        "seeds": rate.num_requested,
        "finished": len(rate.scores(split)),
        "diverged": rate.num_diverged,
    }


def _ends(median: float | None, scores: Sequence[float]) -> dict[str, str]:
    return {
        "score": "" if median is None else "diverged" if median == DIVERGED else _digits(median),
        "lowest": _digits(min(scores)) if scores else "",
        "highest": _digits(max(scores)) if scores else "",
    }


def _digits(fraction: float) -> str:
    return f"{100 * fraction:.6g}"
