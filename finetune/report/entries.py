"""The table of scores as it is printed, written and shown on pages, and its numbers."""

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any

from finetune.report.score_table import DIVERGED, SCORE, Column, RateScores, ScoreTable
from finetune.results.result import TableRow
from finetune.tasks.catalog import known_tasks
from finetune.tasks.metric_names import METRIC_NAMES
from pretrain.reports.report import Report
from pretrain.reports.table import Table
from pretrain.reports.words import counted

OTHER_COLUMNS = ("model", "steps", "average")


def report_of(table: ScoreTable, notes: Sequence[str]) -> Report:
    """Return what `tupelo finetune table` shows."""
    return Report(
        "", shown(table), notes, [line for row in table.rows for line in _records(table, row)]
    )


def shown(table: ScoreTable) -> Table:
    """Return the table, x 100 with one decimal, the best of each column marked.

    Below a median are the metrics that it is made from, the range over the seeds, the learning
    rate where several were tried, and how many seeds there are if some are missing. Runs of a sweep
    that differ in the seed alone have a last row together, and are not marked: the best of many is
    no median.
    """
    arms = _arms(table)
    several = {run for runs in arms.values() for run in runs}
    rows = [{"model": table.label(row)} for row in table.rows]
    rows += [{"model": f"{name}, median of {len(runs)} runs"} for name, runs in arms.items()]
    if any(row.step is not None for row in table.rows):
        for cells, runs in zip(rows, [*([row] for row in table.rows), *arms.values()], strict=True):
            steps = {row.step for row in runs}
            cells["steps"] = "".join(f"{step:,}" for step in steps if step and len(steps) == 1)
    keys, best = len(rows[0]), set()
    columns = [
        (
            # A task of one's own can be called anything.
            f"{column.title} (task)" if column.title in OTHER_COLUMNS else column.title,
            [_entry(table, row, column) for row in table.rows]
            + [_of_arm([table.median(run, column) for run in runs]) for runs in arms.values()],
        )
        for column in table.columns
    ]
    if table.averaged:
        averages = [(table.average(row), ", ".join(table.lacking(row))) for row in table.rows]
        texts = [f"-\nlacks {lacks}" if lacks else _shown(one or 0.0) for one, lacks in averages]
        texts += [_of_arm([table.average(run) for run in runs]) for runs in arms.values()]
        columns.append(("average", texts))
    for title, texts in columns:
        # Equal as shown is equal.
        values = [
            float(value) if value.removeprefix("-").replace(".", "").isdecimal() else DIVERGED
            for text in texts
            for value in [text.partition("\n")[0]]
        ]
        for cells, text in zip(rows, texts, strict=True):
            cells[title] = text
        for number, row in enumerate(table.rows):
            if row in several:
                values[number] = DIVERGED
        highest = max(values)
        best |= {(n, title) for n, value in enumerate(values) if value == highest > DIVERGED}
    return Table("Scores of fine-tuning", rows, caption(table), keys=keys, best=best)


def _arms(table: ScoreTable) -> dict[str, list[TableRow]]:
    """Return the runs of each arm of a sweep that has several, by its folder without the seed."""
    steps = Counter(row.origin for row in table.rows if row.pretrained)
    found: defaultdict[tuple[str, int | None], list[TableRow]] = defaultdict(list)
    for row in table.rows:
        if row.pretrained:
            arm = re.sub(r"-seed\d+$", "", row.origin)
            # Hours end at a step of each run.
            found[arm, row.step if steps[row.origin] > 1 else None].append(row)
    arms = {key: runs for key, runs in found.items() if len({run.origin for run in runs}) > 1}
    short = {arm: str(PurePath(*PurePath(arm).parts[-2:])) for arm, _ in arms}
    arms_of = Counter(short.values())
    return {
        (short[arm] if arms_of[short[arm]] == 1 else arm)
        + ("" if step is None else f" step {step:,}"): runs
        for (arm, step), runs in arms.items()
    }


def _of_arm(scores: Sequence[float | None]) -> str:
    """Return the median over runs and their range; a diverged one is the worst."""
    found = [score for score in scores if score is not None]
    if not found:
        return "-"
    median, finished = statistics.median(found), [one for one in found if one != DIVERGED]
    remark = f"{len(found)} of {counted(len(scores), 'seed')}" if len(found) < len(scores) else ""
    text = "diverged" if median == DIVERGED else _shown(median)
    return "\n".join(filter(None, [text, _range(finished), remark]))


def caption(table: ScoreTable) -> str:
    """Return what the numbers are."""
    metrics = []
    for task in dict.fromkeys(column.task for column in table.columns):
        names = [METRIC_NAMES.get(metric, metric) for metric in table.metrics(task)]
        is_mean = len(names) > 1 and table.rule.takes_mean(task)
        name = f"mean of {' and '.join(names)}" if is_mean else (names or ["-"])[0]
        metrics.append(f"{task} {name}")
    sentences = [
        f"Development scores x 100 by protocol {table.protocol}: median (range) over the seeds at "
        "the learning rate with the best median; a diverged seed is the worst",
        f"Metrics: {', '.join(metrics)}",
    ]
    if table.averaged:
        tasks = dict.fromkeys(column.task for column in table.averaged)
        sentences.append(f"Average over {', '.join(tasks)}, {table.rule.description}")
    return ". ".join(sentences) + "."


def _entry(table: ScoreTable, row: TableRow, column: Column) -> str:
    rate = table.best(row, column.task)
    if rate is None:
        return "-"
    median, scores = rate.median(column.split), rate.scores(column.split)
    is_chosen = len(table.rates[row, column.task]) > 1
    at = f"at {rate.learning_rate:g}" if is_chosen else ""
    requested, remark = rate.num_requested, ""
    if len(scores) < requested and (rate.learning_rate is not None or requested > 1):
        remark = f"{len(scores)} of {counted(requested, 'seed')}"
    if median is None:
        lines = ["-" if rate.finished else "failed", remark]
    elif median == DIVERGED:
        lines = ["diverged", _range(scores), at, remark]
    else:
        lines = [_shown(median), _parts(rate, column), _range(scores), at, remark]
    return "\n".join(filter(None, lines))


def _parts(rate: RateScores, column: Column) -> str:
    """Return the metrics of a suite's task that has several; a task of one's own has the main one.

    The others of the latter are in the CSV and in the figures.
    """
    task = known_tasks().get(column.task)
    metrics = task.metrics if task is not None and len(task.metrics) > 1 else ()
    found = [rate.median(column.split, metric) for metric in metrics]
    if any(median is None or median == DIVERGED for median in found):
        return ""
    return "/".join(_shown(median) for median in found if median is not None)


def _range(scores: Sequence[float]) -> str:
    return f"{_shown(min(scores))} - {_shown(max(scores))}" if len(scores) > 1 else ""


def _shown(fraction: float) -> str:
    return f"{100 * fraction:.1f}"


def _records(table: ScoreTable, row: TableRow) -> Iterator[dict[str, Any]]:
    """Yield the numbers of a row by column, x 100, six digits, and by metric if it has several."""
    before = {"model": table.label(row), "steps": row.step, "protocol": table.protocol}
    after = {"run": PurePath(row.origin).name}
    for column in table.columns:
        rate, metrics = table.best(row, column.task), table.metrics(column.task)
        if rate is None:
            continue
        takes_mean = len(metrics) > 1 and table.rule.takes_mean(column.task)
        for metric in [SCORE, *(metrics if len(metrics) > 1 else [])]:
            name = f" {METRIC_NAMES.get(metric, metric)}" if metric else ""
            main = "mean" if takes_mean else "".join(metrics[:1])
            scores = rate.scores(column.split, metric)
            yield {
                **before,
                "column": column.title + name,
                "metric": metric or main,
                **_ends(rate.median(column.split, metric), scores),
                "learning_rate": "" if rate.learning_rate is None else f"{rate.learning_rate:g}",
                "seeds": rate.num_requested,
                "finished": len(scores),
                "diverged": rate.num_diverged,
                **after,
            }
    if (average := table.average(row)) is not None:
        yield {**before, "column": "average", **_ends(average, []), **after}


def _ends(median: float | None, scores: Sequence[float]) -> dict[str, str]:
    return {
        "score": "" if median is None else "diverged" if median == DIVERGED else _digits(median),
        "lowest": _digits(min(scores)) if scores else "",
        "highest": _digits(max(scores)) if scores else "",
    }


def _digits(fraction: float) -> str:
    return f"{100 * fraction:.6g}"
