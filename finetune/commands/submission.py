"""Write the predictions of one model as a suite's server accepts them, and pack them.

    tupelo finetune submission runs/NAME/tupe_r --to submission

For each task it takes the median seed of the learning rate that is best on the development set. The
trials need --predict-test.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from finetune.report.score_table import ScoreTable, score_table
from finetune.report.scores import Choice, chosen_trial, rate_scores
from finetune.report.submission import Prediction, write_submission
from finetune.results.result import predictions_file
from finetune.results.sweep_results import EndedTrial, SweepResults, TableRow, read_sweep_results
from finetune.tasks.catalog import SUITES
from finetune.tasks.suite import Suite
from finetune.tasks.task import Task
from pretrain.config.errors import ConfigError, nearest
from pretrain.reports.report_folder import ReportFolder
from pretrain.reports.table import Table
from pretrain.reports.terminal import terminal_width


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tupelo finetune submission`."""
    submitted = [name for name, suite in SUITES.items() if suite.submission]
    parser.add_argument("folders", nargs="+", type=Path, help="runs or sweeps of one model")
    parser.add_argument(
        "--to",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="for files and zip: new, empty, or with an earlier submission",
    )
    parser.add_argument("--model", help="its name in the table, if there are several")
    parser.add_argument(
        "--checkpoint", default="newest", metavar="STEP", help="of each run: newest, or a step"
    )
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
    if arguments.checkpoint == "all":
        raise ConfigError("--checkpoint all: a submission is of one; give newest, or a step")
    table = score_table(results, next(iter(suite.averages)), arguments.checkpoint)
    row = _named_row(table, arguments.model)
    choices = {
        task.name: _submitted_trial(table, results, row, task)
        for task in suite.tasks.values()
        if (row, task.name) in table.rates
    }
    found = {name: choice.trial for name, choice in choices.items() if choice.trial is not None}
    left_out = [f"{name}: {choice.reason}" for name, choice in choices.items() if choice.reason]
    if not found:
        raise ConfigError(
            f"no trial of {table.label(row)} has predictions: "
            + ("; ".join(left_out) or f"no task is of {suite.name}")
        )
    folder = ReportFolder(arguments.to, f"a submission of {table.label(row)}", "--to")
    with folder.writing() as place:
        missing = write_submission(suite, _predictions(suite, found), place)
    print(_table(table, row, found).as_text(terminal_width()))
    for line in left_out:
        print(f"note: left out: {line}")
    if missing:
        print(f"note: the server of {suite.name} also needs: {', '.join(missing)}")
    print(f"submission: {arguments.to / 'submission.zip'}")


def _submitted_trial(table: ScoreTable, results: SweepResults, row: TableRow, task: Task) -> Choice:
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


def _predicted_splits(trial: EndedTrial, task: Task) -> list[str]:
    return [split for split in task.test if predictions_file(trial.folder, split).is_file()]


def _predictions(
    suite: Suite, found: Mapping[str, EndedTrial]
) -> dict[tuple[str, str], list[Prediction]]:
    """Return the predictions of the chosen trials by task and split."""
    return {
        (name, split): _read(predictions_file(trial.folder, split), suite.tasks[name])
        for name, trial in found.items()
        for split in _predicted_splits(trial, suite.tasks[name])
    }


def _read(file: Path, task: Task) -> list[Prediction]:
    try:
        found = TypeAdapter(list[Prediction]).validate_json(file.read_bytes(), strict=True)
    except ValidationError:
        found = []
    are_labels = all(one.prediction in range(len(task.labels)) for one in found)
    if not found or not (are_labels or task.kind == "regression"):
        raise ConfigError(f"{file} is damaged; remove {file.parent} to repeat that trial")
    return found


def _table(table: ScoreTable, row: TableRow, found: Mapping[str, EndedTrial]) -> Table:
    """Return which trial is submitted for which task."""
    rows = []
    for task, (_, _, result) in found.items():
        score = rate_scores(0.0, [found[task]], 1, table.rule).median()
        assert score is not None
        rows.append(
            {
                table.label(row): task,
                "learning rate": f"{result.learning_rate:g}",
                "seed": str(result.seed),
                "development score": f"{100 * score:.1f}",
            }
        )
    return Table("Submitted trials", rows)
