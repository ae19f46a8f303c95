"""A table of scores printed, and as files: Markdown, CSV, LaTeX, figures, and a page."""

import itertools
from collections.abc import Sequence
from pathlib import Path

from data_prep.files.atomic import save_text
from finetune.report.entries import report_of
from finetune.report.per_class import PREDICTED, ClassTable, class_tables
from finetune.report.score_table import ScoreTable, best_rate, score_table
from finetune.results.result import TableRow
from finetune.results.sweep_results import EndedTrial, SweepResults, read_sweep_results
from pretrain.reports.report_folder import ReportFolder
from pretrain.reports.table import Table, as_csv
from pretrain.reports.words import paragraph, terminal_width

CLASSES_FILE = "classes.csv"
MOST_CLASSES = 21  # printed, of all tables, with the averages

METHOD = """Each model is fine-tuned on each task with every learning rate and every seed, and
scored on the development set after the last epoch, not after the best one. The score of a
learning rate is the median over the seeds, and the score of the model is that of the rate with
the best median (TUPE, Sec. 4.1); with several development sets, the best mean over them. The rate
is chosen on the set that is reported: scores are slightly higher than on new text, for all models
alike. A seed that diverged counts as worse than any score; a seed that failed, for example for
lack of memory, is left out of the median. The majority class predicts the most frequent training
label, or the mean of the training values, for every example. In figures, lines are medians over
the seeds, with a gap where a median is a seed that diverged, and bands are the range of the
finished ones; those over pre-training are at the learning rate of the table."""


def print_table(
    folders: Sequence[Path],
    *,
    to: Path | None = None,
    average: str | None = None,
    step: str = "newest",
) -> list[ClassTable]:
    """Print the table of these folders and remarks on it; write it to the folder `to`.

    Returned, and printed where they are short, are the tables of classes. `folders` are runs or
    sweeps; for `average` and `step` see `score_table`. `to` gets table.md, table.csv, table.tex,
    classes.csv, index.html and figures.

    Raises:
        ConfigError: see `read_sweep_results` and `score_table`; the folder holds something else, or
            cannot be written.
    """
    results = read_sweep_results(folders)
    table = score_table(results, average, step)
    report = report_of(table, notes(table, results))
    folder = ReportFolder(to or Path(), "a table of scores", "--to")
    if to is not None:
        folder.refuse_if_taken()
    classes, width = class_tables(table, results), terminal_width()
    print(report.as_text(width))
    is_short = sum(len(found.table.rows) for found in classes) <= MOST_CLASSES
    for title, rows in [(each.table.title, each.table.rows) for each in classes if is_short]:
        scores = [{key: row[key] for key in row if not key.startswith(PREDICTED)} for row in rows]
        print(f"\n{paragraph(title, width)}\n\n{Table(title, scores).as_text(width)}")
    if to is None:
        return classes
    from finetune.report.figures import draw_figures  # matplotlib takes a second

    with folder.writing() as place:
        report.write(
            place,
            pictures=draw_figures(table, place / "figures"),
            details=[each.table for each in classes],
            method=METHOD,
            provenance=[
                f"{table.label(row)}: weights from {row.origin}"
                + ("" if row.step is None else f", step {row.step:,}")
                for row in table.rows
                if row.origin
            ],
        )
        save_classes(place, classes)
    print(f"table: {to / 'index.html'}")
    return classes


def save_classes(folder: Path, classes: Sequence[ClassTable]) -> None:
    """Write classes.csv, a line for each class in each table; nothing where there is none."""
    if classes:
        rows = [
            {"model": one.model, "task": one.task, **r} for one in classes for r in one.table.rows
        ]
        save_text(folder / CLASSES_FILE, as_csv(rows))


def notes(table: ScoreTable, results: SweepResults) -> list[str]:
    """Return a line for everything that is missing, failed, or differs between trials."""
    lines = _remarkable(table, results)
    requested = {
        trial
        for one in results.requested
        for rows in [[model.row for model in one.models]]
        for trial in itertools.product(rows, one.tasks, one.learning_rates, one.seeds)
    }
    over = {(t.row, t.result.task, t.result.learning_rate, t.result.seed) for t in results.trials}
    if missing := requested - over:
        lines.append(f"{len(missing)} of {len(requested)} trials not run")
    doubtful: dict[str, list[str]] = {}
    for task in dict.fromkeys(column.task for column in table.columns):
        found = [table.rates[row, task] for row in table.every_row if (row, task) in table.rates]
        tuned: dict[TableRow, set[float]] = {}
        for row, _, rate, _ in (trial for trial in requested if trial[1] == task):
            tuned.setdefault(row, set()).add(rate)
        at_edge = any(len(r) > 1 and best_rate(r) in (r[0], r[-1]) for r in found)
        precisions = {t.result.precision for t in results.trials if t.result.task == task}
        for what, applies in (
            ("one seed", any(rates[0].num_requested == 1 for rates in found)),
            ("different numbers of seeds", len({rates[0].num_requested for rates in found}) > 1),
            ("best at the highest or lowest --learning_rates", at_edge),
            ("different learning rates", len(set(map(frozenset, tuned.values()))) > 1),
            ("different precisions", len(precisions - {None}) > 1),
        ):
            if applies:
                doubtful.setdefault(what, []).append(task)
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
        f"{name} on {task}: {len(trials)} {'with a remark' if status == 'finished' else status}, "
        f"the first at {first.learning_rate:g}, seed {first.seed}"
        + (f": {first.reason}" if first.reason else "")
        for (name, task, status), trials in groups.items()
        for first in [trials[0].result]
    ]
