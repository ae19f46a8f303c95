"""Write the predictions of one model in the layout of GLUE's server, and pack them.

    python -m finetune submission runs/NAME/tupe_r --to submission

For each task it takes the learning rate that is best on the development set and, of its seeds, the
one whose score is the median. The runs must have been made with --predict-test.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, FiniteFloat, TypeAdapter, ValidationError
from tabulate import tabulate

from finetune.report.score_table import ScoreTable, score_table
from finetune.report.scores import cell_at
from finetune.report.submission import submission_files, write_predictions, zip_submission
from finetune.results.records import Records, Row, Run, read_records
from finetune.tasks.glue import GLUE, Example, Task
from pretrain.config.errors import ConfigError, nearest


class Prediction(BaseModel):
    """What a run predicted for one example of a test set."""

    identity: str
    prediction: int | FiniteFloat  # index of a label, or a value


class Chosen(NamedTuple):
    """The run that speaks for a task, or why none does."""

    run: Run | None
    reason: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `python -m finetune submission`."""
    parser.add_argument("folders", nargs="+", type=Path, help="runs or grids of one model")
    parser.add_argument("--to", type=Path, required=True, help="folder for the files and the zip")
    parser.add_argument("--model", help="its name in the table, where there are several")
    parser.add_argument("--step", default="newest", help="of pre-training: newest, or a number")


def main(arguments: argparse.Namespace) -> None:
    """Write the files, and say where they come from and what is missing.

    Raises:
        ConfigError: there are several models, none of their runs predicted a test set, or the
            folder cannot be written.
    """
    records = read_records(arguments.folders)
    if arguments.step == "all":
        raise ConfigError("--step all: a submission is of one step; give newest, or a number")
    table = score_table(records, "glue", arguments.step)
    row = _named_row(table, arguments.model)
    tasks = [task for task in GLUE if (row, task) in table.cells]
    chosen = {task: median_run(table, records, row, task) for task in tasks}
    found = {task: choice.run for task, choice in chosen.items() if choice.run is not None}
    if not found:
        raise ConfigError(
            f"no run of {table.label(row)} gives predictions: "
            + ("; ".join(f"{t}: {c.reason}" for t, c in chosen.items()) or "no task is of GLUE")
        )
    missing = _write(found, arguments.to)
    print(_table(table, row, found))
    for task, choice in chosen.items():
        if choice.reason:
            print(f"note: {task} is left out: {choice.reason}")
    if missing:
        print(f"note: GLUE's server wants these too: {', '.join(missing)}")
    print(f"submission: {arguments.to / 'submission.zip'}")


def median_run(table: ScoreTable, records: Records, row: Row, task: str) -> Chosen:
    """Return the run at the best learning rate whose development score is the median.

    Of an even number of seeds it is the lower one in the middle. A diverged seed is below all.
    """
    cell = table.best(row, task)
    assert cell is not None
    rate = cell.learning_rate
    ranked = sorted(
        (cell_at(0.0, [run], 1, table.counting).median(), run.result.seed, run)
        for run in records.runs
        if (run.row, run.result.task, run.result.learning_rate) == (row, task, rate)
        and run.result.status != "failed"
    )
    if not ranked:
        return Chosen(None, "every seed failed")
    run = ranked[(len(ranked) - 1) // 2][2]
    if run.result.status == "diverged":
        return Chosen(None, f"half or more of the seeds diverged at the best rate, {rate:g}")
    if not _files(run):
        return Chosen(
            None, f"{run.folder} holds no predictions; start the grid again with --predict-test"
        )
    return Chosen(run)


def _named_row(table: ScoreTable, name: str | None) -> Row:
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


def _write(found: Mapping[str, Run], folder: Path) -> list[str]:
    """Write a submission in place of what was there; return the files that it lacks."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in submission_files():
            (folder / name).unlink(missing_ok=True)  # of another model, it would be packed too
        for task, run in found.items():
            _write_task(task, run, folder)
        return zip_submission(folder, folder / "submission.zip")
    except OSError as error:
        raise ConfigError(
            f"cannot write the submission to {folder}: {error.strerror}; choose another --to"
        ) from None


def _write_task(task: str, run: Run, folder: Path) -> None:
    for split in _files(run):
        predictions = _read(run.folder / f"predictions_{split}.json", GLUE[task])
        write_predictions(
            GLUE[task],
            split,
            [prediction.prediction for prediction in predictions],
            [Example((), None, prediction.identity) for prediction in predictions],
            folder,
        )


def _files(run: Run) -> list[str]:
    """Return the test splits that the run predicted."""
    splits = GLUE[run.result.task].test
    return [split for split in splits if (run.folder / f"predictions_{split}.json").is_file()]


def _read(file: Path, task: Task) -> list[Prediction]:
    try:
        found = TypeAdapter(list[Prediction]).validate_json(file.read_bytes(), strict=True)
    except ValidationError:
        found = []
    values = [prediction.prediction for prediction in found]
    are_known = all(value in range(len(task.labels)) for value in values)
    if not found or not (are_known or task.kind == "regression"):
        raise ConfigError(f"{file} is damaged; remove {file.parent}, and that run is repeated")
    return found


def _table(table: ScoreTable, row: Row, found: dict[str, Run]) -> str:
    """Return which run speaks for which task."""
    rows: list[Sequence[str]] = []
    for task, run in found.items():
        score = cell_at(0.0, [run], 1, table.counting).median()
        assert score is not None
        rate = f"{run.result.learning_rate:g}"
        rows.append([task, rate, str(run.result.seed), f"{100 * score:.1f}"])
    return tabulate(
        rows,
        headers=[table.label(row), "learning rate", "seed", "development score"],
        colalign=("left", "right", "right", "right"),
        disable_numparse=True,
    )
