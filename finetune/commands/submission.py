"""Write the predictions of one model as a suite's server accepts them, and pack them.

    tupelo finetune submission runs/NAME/tupe_r --to submission

For each task it takes the median seed of the learning rate that is best on the development set. The
trials need --predict-test.
"""

import argparse
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from finetune.report.score_table import ScoreTable, score_table
from finetune.report.scores import chosen_trial, rate_scores
from finetune.report.submission import Prediction, write_submission
from finetune.results.result import predictions_file
from finetune.results.sweep_record import TableRow
from finetune.results.sweep_results import read_sweep_results
from finetune.tasks.catalog import SUITES
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
    if arguments.checkpoint == "all":
        raise ConfigError("--checkpoint all: a submission is of one; give newest, or a step")
    results, suite = read_sweep_results(arguments.folders), SUITES[arguments.suite]
    table = score_table(results, next(iter(suite.averages)), arguments.checkpoint)
    row = _named_row(table, arguments.model)
    label, left_out = table.label(row), list[str]()
    rows, predictions = list[dict[str, str]](), dict[tuple[str, str], list[Prediction]]()
    for task in suite.tasks.values():
        trials = [t for t in results.trials if (t.row, t.result.task) == (row, task.name)]
        trial = chosen_trial(trials, table.rule) if trials else None
        reason = "the median seed diverged, or every seed failed" if trials and not trial else ""
        found = {} if trial is None else _predictions(trial.folder, task)
        if trial is not None and not found:
            reason = f"{trial.folder} holds no predictions; repeat the sweep with --predict-test"
        if reason:
            left_out.append(f"{task.name}: {reason}")
        elif trial is not None:
            predictions |= found
            score = rate_scores(0.0, [trial], 1, table.rule).scores()[0]
            named = {"rate": f"{trial.result.learning_rate:g}", "seed": str(trial.result.seed)}
            rows.append({label: task.name, **named, "score": f"{100 * score:.1f}"})
    if not predictions:
        reasons = "; ".join(left_out) or f"no task is of {suite.name}"
        raise ConfigError(f"no trial of {label} has predictions: {reasons}")
    with ReportFolder(arguments.to, f"a submission of {label}", "--to").writing() as place:
        missing = write_submission(suite, predictions, place)
    print(Table("Submitted trials", rows).as_text(terminal_width()))
    if missing:
        left_out.append(f"the server of {suite.name} also needs {', '.join(missing)}")
    for line in left_out:
        print(f"note: {line}")
    print(f"submission: {arguments.to / 'submission.zip'}")


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


def _predictions(trial: Path, task: Task) -> dict[tuple[str, str], list[Prediction]]:
    """Return what a trial has predicted, by task and split."""
    predictions = {}
    for split in task.test:
        file = predictions_file(trial, split)
        if not file.is_file():
            continue
        try:
            found = TypeAdapter(list[Prediction]).validate_json(file.read_bytes(), strict=True)
        except ValidationError:
            found = []
        are_labels = all(one.prediction in range(len(task.labels)) for one in found)
        if not found or not (are_labels or task.kind == "regression"):
            raise ConfigError(f"{file} is damaged; remove {trial} to repeat that trial")
        predictions[task.name, split] = found
    return predictions
