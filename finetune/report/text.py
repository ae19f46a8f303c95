"""A table of scores as text: for the terminal, Markdown, CSV and LaTeX."""

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from finetune.report.caption import caption
from finetune.report.entries import Entry, entries, has_costs, headers, headers_of_rows, step_text
from finetune.report.score_table import MAJORITY, ScoreTable
from finetune.report.scores import DIVERGED, RateScores
from finetune.results.sweep_results import TableRow
from finetune.tasks.metric_names import METRIC_NAMES
from pretrain.reports.terminal import fitting_table

FIELDS = (
    *("model", "steps", "protocol", "column", "metric", "score", "lowest", "highest"),
    *("learning_rate", "seeds", "finished", "diverged", "arm", "pretraining_seed"),
    "run",
)
TEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    }
)


def as_text(table: ScoreTable, width: int) -> str:
    """Return the table for a terminal of `width` letters; range and remarks are below a median."""
    rows = [["\n".join([entry.value, *entry.below]) for entry in row] for row in entries(table)]
    return fitting_table(headers(table), rows, width, repeated=len(headers_of_rows(table)))


def as_markdown(table: ScoreTable, notes: Sequence[str]) -> str:
    """Return the table, its caption and the notes as Markdown."""
    lines = [
        [name.replace("|", "\\|") for name in headers(table)],
        ["---", *["---:"] * (len(headers(table)) - 1)],
        *([_markdown(entry) for entry in row] for row in entries(table)),
    ]
    text = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    listed = "".join(f"* {note}\n" for note in notes)
    return f"{text}\n\n{caption(table)}\n" + (f"\n{listed}" if listed else "")


def as_csv(table: ScoreTable) -> str:
    """Return a line per model and column, x 100, with six digits, and the run's folder at its end.

    A column with several metrics has a line for each of them too.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    cost = [table.axis] if has_costs(table) else []
    writer.writerow([*FIELDS[:2], *cost, *FIELDS[2:]])
    for row in table.listed:
        at = [table.cost(row)] if cost else []
        arm = table.arm(row)
        of_arm = ["", ""] if arm is None else [table.label(arm.row), arm.seeds.get(row)]
        run = "" if arm and row == arm.row else PurePath(row.origin).name
        for line in _lines(table, row):
            writer.writerow([table.label(row), row.step, *at, table.protocol, *line, *of_arm, run])
    return stream.getvalue()


def as_latex(table: ScoreTable, notes: Sequence[str]) -> str:
    """Return a table environment for the package booktabs."""
    names = headers(table)
    return "\n".join(
        [
            r"% \usepackage{booktabs}",
            *(f"% {' '.join(note.split())}" for note in notes),
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{caption(table).translate(TEX)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(names) - 1)}}}",
            r"\toprule",
            " & ".join(name.translate(TEX) for name in names) + r" \\",
            r"\midrule",
            *(" & ".join(map(_tex, row)) + r" \\" for row in entries(table)),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def rate_rows(table: ScoreTable) -> tuple[list[str], list[list[str]]]:
    """Return the headers and rows of a table of the best learning rates."""
    tasks = list(dict.fromkeys(column.task for column in table.columns))
    rows = []
    for row in (row for row in table.rows if row != MAJORITY):
        found = [table.best(row, task) for task in tasks]
        rates = ["-" if rate is None else f"{rate.learning_rate:g}" for rate in found]
        rows.append([table.label(row), step_text(table, row), *rates])
    return ["model", "steps", *tasks], rows


def _markdown(entry: Entry) -> str:
    value = entry.value.replace("|", "\\|")
    inside = "; ".join(entry.below).replace("|", "\\|")
    return (f"**{value}**" if entry.best else value) + (f" ({inside})" if inside else "")


def _lines(table: ScoreTable, row: TableRow) -> Iterator[list[str]]:
    """Yield column, metric and numbers of every column, and of its metrics if it has several."""
    for column in table.columns:
        rate, metrics = table.best(row, column.task), table.metrics(column.task)
        if rate is None:
            continue
        several = metrics if len(metrics) > 1 else []
        main = "mean" if several and table.rule.takes_mean(column.task) else "".join(metrics[:1])
        yield [column.title, main, *_numbers(rate, column.split)]
        for metric in several:
            numbers = _numbers(rate.of_metric(metric), column.split)
            yield [f"{column.title} {METRIC_NAMES.get(metric, metric)}", metric, *numbers]
    average, averages = table.average(row), table.averages(row)
    if table.has_average and average is not None:
        ends = [min(averages), max(averages)] if len(averages) > 1 else []
        numbers = [_digits(value) for value in (average, *ends)]
        yield ["average", "", *numbers, *[""] * (7 - len(numbers))]


def _tex(entry: Entry) -> str:
    value = entry.value.translate(TEX)
    inside = "; ".join(entry.below).replace(" - ", "--").translate(TEX)
    return (rf"\textbf{{{value}}}" if entry.best else value) + (f" ({inside})" if inside else "")


def _numbers(rate: RateScores, split: str) -> list[str]:
    median, scores = rate.median(split), rate.scores(split)
    learning_rate = "" if rate.learning_rate is None else f"{rate.learning_rate:g}"
    seeds = [str(number) for number in (rate.num_requested, len(scores), rate.num_diverged)]
    value = "" if median is None else "diverged" if median == DIVERGED else _digits(median)
    ends = [_digits(min(scores)), _digits(max(scores))] if scores else ["", ""]
    return [value, *ends, learning_rate, *seeds]


def _digits(fraction: float) -> str:
    return f"{100 * fraction:.6g}"
