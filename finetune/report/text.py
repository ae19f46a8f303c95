"""A table of scores as text: for the terminal, Markdown, CSV and LaTeX."""

import csv
import io
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from finetune.report.axes import STEPS
from finetune.report.score_table import MAJORITY, ScoreTable
from finetune.report.scores import DIVERGED, RateScores
from finetune.results.sweep_results import TableRow
from finetune.tasks.catalog import known_tasks
from pretrain.reports.terminal import fitting_table
from pretrain.reports.words import amount, counted

FIELDS = (
    *("model", "steps", "protocol", "column", "score", "lowest", "highest"),
    *("learning_rate", "seeds", "finished", "diverged"),
)
TEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    }
)


class Entry(NamedTuple):
    """The content of one place of the table."""

    value: str
    spread: str = ""  # over the seeds
    remark: str = ""  # on missing seeds or tasks
    best: bool = False


def headers(table: ScoreTable) -> list[str]:
    """Return the names of the columns of `entries`."""
    steps = ["steps"] if _has_steps(table) else []
    average = ["average"] if table.has_average else []
    cost = [_cost_header(table)] if _has_costs(table) else []
    return ["model", *steps, *cost, *(column.title for column in table.columns), *average]


def entries(table: ScoreTable) -> list[list[Entry]]:
    """Return the rows of the table, x 100 with one decimal, the best of each column marked."""
    usual = _usual_seeds(table)
    columns = [[Entry(table.label(row)) for row in table.rows]]
    if _has_steps(table):
        columns.append([Entry(_step(row)) for row in table.rows])
    if _has_costs(table):
        columns.append([Entry(_cost(table, row)) for row in table.rows])
    for column in table.columns:
        medians = [table.median(row, column) for row in table.rows]
        best = [table.best(row, column.task) for row in table.rows]
        found = [_entry(rate, column.split, usual) for rate in best]
        columns.append(_marked(found, medians))
    if table.has_average:
        columns.append(_averages(table))
    return [list(row) for row in zip(*columns, strict=True)]


def caption(table: ScoreTable) -> str:
    """Return a description of the numbers."""
    known = known_tasks()
    several = [
        f"{task} ({', '.join(known[task].metrics)})"
        for task in dict.fromkeys(column.task for column in table.averaged)
        if len(known[task].metrics) > 1
    ]
    seeds = _usual_seeds(table)
    sentences = [
        f"Scores on the development sets x 100 after fine-tuning by protocol {table.protocol}",
        f"Median (range) over {seeds} seeds, unless said otherwise, at the learning rate whose "
        "median is best"
        if seeds > 1
        else "One seed, unless said otherwise, at the learning rate that is best",
        "A diverged seed counts as worse than any score; ranges are over finished seeds",
    ]
    if several:
        sentences.append(f"{', '.join(several)}: the {table.rule.metric} of these")
    if table.has_average:
        sentences.append(_average_in_words(table))
    return ". ".join(sentences) + "."


def as_text(table: ScoreTable, width: int) -> str:
    """Return the table for a terminal of `width` letters; range and remarks are below a median."""
    rows = [["\n".join(filter(None, entry[:3])) for entry in row] for row in entries(table)]
    repeated = 1 + _has_steps(table) + _has_costs(table)
    return fitting_table(headers(table), rows, width, repeated=repeated)


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
    """Return a line per model and column, x 100, with six digits."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    cost = [table.axis.name] if _has_costs(table) else []
    writer.writerow([*FIELDS[:2], *cost, *FIELDS[2:]])
    for row in table.rows:
        at = [table.costs.get(row, "")] if cost else []
        start = [table.label(row), "" if row.step is None else row.step, *at, table.protocol]
        for column in table.columns:
            rate = table.best(row, column.task)
            if rate is not None:
                writer.writerow([*start, column.title, *_numbers(rate, column.split)])
        average = table.average(row)
        if table.has_average and average is not None:
            writer.writerow([*start, "average", _digits(average), *[""] * 6])
    return stream.getvalue()


def as_latex(table: ScoreTable, notes: Sequence[str]) -> str:
    """Return a table environment for the package booktabs, with ranges below the medians."""
    names = headers(table)
    body = []
    for row in entries(table):
        body.append(" & ".join(_tex(entry) for entry in row) + r" \\")
        below = [
            " ".join([entry.spread.replace(" - ", "--"), entry.remark]).strip().translate(TEX)
            for entry in row
        ]
        if any(below):
            small = [rf"{{\scriptsize {text}}}" if text else "" for text in below]
            body.append(" & ".join(small) + r" \\[2pt]")
    return "\n".join(
        [
            r"% \usepackage{booktabs}",
            *(f"% {' '.join(note.split())}" for note in notes),
            r"\begin{table}",
            r"\centering\small",
            rf"\caption{{{caption(table).translate(TEX)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(names) - 1)}}}",
            r"\toprule",
            " & ".join(name.translate(TEX) for name in names) + r" \\",
            r"\midrule",
            *body,
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
    for row in table.rows:
        if row == MAJORITY:
            continue
        found = [table.best(row, task) for task in tasks]
        rates = ["-" if rate is None else f"{rate.learning_rate:g}" for rate in found]
        rows.append([table.label(row), _step(row), *rates])
    return ["model", "steps", *tasks], rows


def _entry(rate: RateScores | None, split: str, usual_seeds: int) -> Entry:
    if rate is None:
        return Entry("-")
    median, scores = rate.median(split), rate.scores(split)
    spread = f"{100 * min(scores):.1f} - {100 * max(scores):.1f}" if len(scores) > 1 else ""
    remark = ""
    requested = rate.num_requested
    if rate.learning_rate is not None and len(scores) < requested:
        remark = f"{len(scores)} of {counted(requested, 'seed')}"
    elif rate.learning_rate is not None and requested != usual_seeds:
        remark = counted(requested, "seed")
    if median is None:
        return Entry("-" if rate.finished else "failed", "", remark)
    return Entry("diverged" if median == DIVERGED else f"{100 * median:.1f}", spread, remark)


def _averages(table: ScoreTable) -> list[Entry]:
    averages = [table.average(row) for row in table.rows]
    found = [
        Entry(f"{100 * average:.1f}")
        if average is not None
        else Entry("-", "", f"lacks {', '.join(table.lacking(row))}")
        for row, average in zip(table.rows, averages, strict=True)
    ]
    return _marked(found, averages)


def _marked(found: Sequence[Entry], values: Sequence[float | None]) -> list[Entry]:
    """Mark the entries with the highest value, several if they are equal as shown."""
    rounded = [DIVERGED if value is None else round(100 * value, 1) for value in values]
    best = max(rounded)
    return [
        entry._replace(best=value == best > DIVERGED)
        for entry, value in zip(found, rounded, strict=True)
    ]


def _markdown(entry: Entry) -> str:
    value = entry.value.replace("|", "\\|")
    inside = "; ".join(filter(None, entry[1:3])).replace("|", "\\|")
    return (f"**{value}**" if entry.best else value) + (f" ({inside})" if inside else "")


def _tex(entry: Entry) -> str:
    value = entry.value.translate(TEX)
    return rf"\textbf{{{value}}}" if entry.best else value


def _numbers(rate: RateScores, split: str) -> list[str]:
    median, scores = rate.median(split), rate.scores(split)
    learning_rate = "" if rate.learning_rate is None else f"{rate.learning_rate:g}"
    seeds = [str(number) for number in (rate.num_requested, len(scores), rate.num_diverged)]
    value = "" if median is None else "diverged" if median == DIVERGED else _digits(median)
    ends = [_digits(min(scores)), _digits(max(scores))] if scores else ["", ""]
    return [value, *ends, learning_rate, *seeds]


def _digits(fraction: float) -> str:
    return f"{100 * fraction:.6g}"


def _step(row: TableRow) -> str:
    """Return the step as in papers, 300k or 1M, if it is a round number."""
    if row.step is None:
        return ""
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if row.step and row.step % size == 0:
            return f"{row.step // size}{letter}"
    return f"{row.step:,}"


def _cost_header(table: ScoreTable) -> str:
    return "FLOPs" if table.axis.name == "flops" else table.axis.name


def _cost(table: ScoreTable, row: TableRow) -> str:
    return amount(table.costs[row], table.axis.key) if row in table.costs else ""


def _has_costs(table: ScoreTable) -> bool:
    """Return whether the table has a column of them beside the steps."""
    return table.axis.name != STEPS and bool(table.costs)


def _has_steps(table: ScoreTable) -> bool:
    return any(row.step is not None for row in table.rows)


def _average_in_words(table: ScoreTable) -> str:
    tasks = list(dict.fromkeys(column.task for column in table.averaged))
    is_whole = len(tasks) == len(table.rule.tasks)
    over = f"all {len(tasks)} tasks" if is_whole else f"{', '.join(tasks)} only"
    return f"The average is over {over}, {table.rule.description}"


def _usual_seeds(table: ScoreTable) -> int:
    """Return how many seeds most entries of the table have."""
    numbers = [
        rates[0].num_requested
        for (row, _), rates in table.rates.items()
        if row != MAJORITY and row in table.rows
    ]
    return statistics.mode(numbers) if numbers else 1
