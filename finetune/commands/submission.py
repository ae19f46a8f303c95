"""Write the predictions of one model as a suite's server accepts them, and pack them.

    tupelo finetune submission runs/NAME/tupe_r --to submission

For each task it takes the median seed of the learning rate that is best on the development set. The
trials need --predict-test.
"""

import argparse
import zipfile
from pathlib import Path

from pydantic import BaseModel, FiniteFloat, TypeAdapter

from data_prep.files.atomic import save_text
from finetune.report.score_table import ScoreTable, chosen_trial, score_table
from finetune.results.result import predictions_file, read_json
from finetune.results.sweep_results import TableRow, read_sweep_results
from finetune.tasks.catalog import SUITES
from finetune.tasks.task import Task, TaskError
from pretrain.config.errors import ConfigError, nearest
from pretrain.reports.report_folder import ReportFolder


class Prediction(BaseModel):
    """The prediction of a trial for one example of a test set."""

    identity: str
    prediction: int | FiniteFloat  # index of a label, or a value


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
    """Write the files, and print the trial of each of them and the missing ones.

    Raises:
        ConfigError: there are several models, none of their trials predicted a test set, or the
            folder holds something else or cannot be written.
    """
    if arguments.checkpoint == "all":
        raise ConfigError("--checkpoint all: a submission is of one; give newest, or a step")
    results, suite = read_sweep_results(arguments.folders), SUITES[arguments.suite]
    assert suite.submission is not None
    table = score_table(results, next(iter(suite.averages)), arguments.checkpoint)
    row = _named_row(table, arguments.model)
    contents, places, missing = dict[str, str](), dict[str, Path](), list[str]()
    for task in suite.tasks.values():
        trials = [t for t in results.trials if (t.row, t.result.task) == (row, task.name)]
        trial = chosen_trial(trials, table.rule) if trials else None
        for split in task.test:
            name = f"{task.title(split)}.tsv"
            if trial is None or not (file := predictions_file(trial.folder, split)).is_file():
                missing.append(name)
                continue
            contents[name] = suite.submission(task, _in_order(file, task))
            places[name] = trial.folder
    needed = f"{suite.name} also needs {', '.join(missing)}: of trials with --predict-test"
    label = table.label(row)
    if not contents:
        raise ConfigError(f"no chosen trial of {label} has predictions; {needed}")
    folder = ReportFolder(arguments.to, f"a submission of {label}", "--to")
    with folder.writing() as place, zipfile.ZipFile(place / "submission.zip", "w") as archive:
        for name, content in contents.items():
            save_text(place / name, content)
            # Without its time: equal files make equal archives.
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    for name, trial_folder in places.items():
        print(f"{name}: {trial_folder}")
    if missing:
        print(f"note: the server of {needed}")
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


def _in_order(file: Path, task: Task) -> list[tuple[int, int | float]]:
    """Return pairs of index and prediction, in the order of the indices."""
    fix = f"remove {file.parent} to repeat that trial"
    found = read_json(file, TypeAdapter(list[Prediction]), fix)
    if task.labels and not all(one.prediction in range(len(task.labels)) for one in found):
        raise ConfigError(f"{file} is damaged: {task.name} has other labels; {fix}")
    rows = {int(one.identity): one.prediction for one in found if one.identity.isdecimal()}
    if len(rows) < len(found):
        raise TaskError(
            f"{file}: an index of an example is no whole number, or occurs twice; fix the file of "
            "the test set"
        )
    return sorted(rows.items())
