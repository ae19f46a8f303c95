"""Write the predictions of one model as a suite's server accepts them, and pack them.

    tupelo finetune submission runs/NAME/tupe_r --to submission

For each task it takes the median seed of the learning rate that is best on the development set. The
trials need --predict-test.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from tabulate import tabulate

from finetune.report.choice import Choice, chosen_trial
from finetune.report.score_table import ScoreTable, score_table
from finetune.report.scores import rate_scores
from finetune.report.submission import (
    Prediction,
    submission_format,
    write_predictions,
    zip_submission,
)
from finetune.results.result import predictions_file
from finetune.results.sweep_results import EndedTrial, SweepResults, TableRow, read_sweep_results
from finetune.tasks.catalog import SUITES
from finetune.tasks.suite import Suite
from finetune.tasks.task import Task
from pretrain.config.errors import ConfigError, nearest
from pretrain.reports.report_folder import ReportFolder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tupelo finetune submission`."""
    submitted = [name for name, suite in SUITES.items() if suite.submission]
    parser.add_argument("folders", nargs="+", type=Path, help="runs or sweeps of one model")
    parser.add_argument(
        "--to",
        type=Path,
        required=True,
        help="folder for files and zip: new, empty, or with an earlier report",
    )
    parser.add_argument("--model", help="its name in the table, if there are several")
    parser.add_argument("--step", default="newest", help="pre-training step: newest, or a number")
    parser.add_argument(
        "--suite", choices=submitted, default=submitted[0], help="default: %(default)s"
    )


def main(arguments: argparse.Namespace) -> None:
    """Write the files, and print their trials and the missing files.

    Raises:
        ConfigError: there are several models, none of their trials predicted a test set, or the
            folder holds something else or cannot be written.
    """
    results, suite = read_sweep_results(arguments.folders), SUITES[arguments.suite]
    if arguments.step == "all":
        raise ConfigError("--step all: a submission is of one step; give newest, or a number")
    table = score_table(results, next(iter(suite.averages)), arguments.step)
    row = _named_row(table, arguments.model)
    tasks = [task for name, task in suite.tasks.items() if (row, name) in table.rates]
    choices = {task.name: submitted_trial(table, results, row, task) for task in tasks}
    found = {name: choice.trial for name, choice in choices.items() if choice.trial is not None}
    if not found:
        reasons = "; ".join(f"{name}: {choice.reason}" for name, choice in choices.items())
        raise ConfigError(
            f"no trial of {table.label(row)} has predictions: "
            + (reasons or f"no task is of {suite.name}")
        )
    what = f"a submission of {table.label(row)}"
    folder = ReportFolder(arguments.to, what, "--to")
    missing = _write(suite, found, folder)
    print(_table(table, row, found))
    for name, choice in choices.items():
        if choice.reason:
            print(f"note: {name} is left out: {choice.reason}")
    if missing:
        print(f"note: {submission_format(suite).server} also needs: {', '.join(missing)}")
    print(f"submission: {arguments.to / 'submission.zip'}")


def submitted_trial(table: ScoreTable, results: SweepResults, row: TableRow, task: Task) -> Choice:
    """Return the trial that stands for a task, if it has predicted a test set."""
    trials = [
        trial for trial in results.trials if (trial.row, trial.result.task) == (row, task.name)
    ]
    choice = chosen_trial(trials, table.rule)
    if choice.trial is not None and not _predicted_splits(choice.trial, task):
        return Choice(
            None,
            f"{choice.trial.folder} holds no predictions; repeat the sweep with --predict-test",
        )
    return choice


def _named_row(table: ScoreTable, name: str | None) -> TableRow:
    """Return the row of this label, or the only pre-trained one."""
    rows = {table.label(row): row for row in table.rows if row.origin}
    if name is not None and name not in rows:
        raise ConfigError(
            f"--model {name!r}: there is no such model{nearest(name, list(rows))}; "
            f"one of {', '.join(rows)}"
        )
    if name is not None:
        return rows[name]
    pretrained = [row for row in rows.values() if row.pretrained] or list(rows.values())
    if len(pretrained) > 1:
        names = ", ".join(table.label(row) for row in pretrained)
        raise ConfigError(f"a submission is of one model; choose --model of {names}")
    return pretrained[0]


def _write(suite: Suite, found: Mapping[str, EndedTrial], folder: ReportFolder) -> list[str]:
    """Write a submission in place of an earlier one; return the files that it lacks."""
    with folder.writing() as place:
        for name, trial in found.items():
            task = suite.tasks[name]
            for split in _predicted_splits(trial, task):
                predictions = _read(predictions_file(trial.folder, split), task)
                write_predictions(suite, task, split, predictions, place)
        return zip_submission(suite, place, place / "submission.zip")


def _predicted_splits(trial: EndedTrial, task: Task) -> list[str]:
    return [split for split in task.test if predictions_file(trial.folder, split).is_file()]


def _read(file: Path, task: Task) -> list[Prediction]:
    try:
        found = TypeAdapter(list[Prediction]).validate_json(file.read_bytes(), strict=True)
    except ValidationError:
        found = []
    are_labels = all(one.prediction in range(len(task.labels)) for one in found)
    if not found or not (are_labels or task.kind == "regression"):
        raise ConfigError(f"{file} is damaged; remove {file.parent} to repeat that trial")
    return found


def _table(table: ScoreTable, row: TableRow, found: Mapping[str, EndedTrial]) -> str:
    """Return which trial is submitted for which task."""
    rows: list[Sequence[str]] = []
    for task, trial in found.items():
        score = rate_scores(0.0, [trial], 1, table.rule).median()
        assert score is not None
        rate = f"{trial.result.learning_rate:g}"
        rows.append([task, rate, str(trial.result.seed), f"{100 * score:.1f}"])
    return tabulate(
        rows,
        headers=[table.label(row), "learning rate", "seed", "development score"],
        colalign=("left", "right", "right", "right"),
        disable_numparse=True,
    )
