"""Arms of a table: pre-training runs that differ in nothing but the seed.

The score of an arm is the median of the scores of its runs. A run whose score diverged counts as
worse than any score, as a seed of fine-tuning does; a run without a score is left out.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from finetune.report.scores import DIVERGED, RateScores
from finetune.results.sweep_results import EndedTrial, TableRow
from pretrain.checkpoint.starting import RESULT_FILE, RUN_FILE
from pretrain.compare.run_files import LEAVE_OUT, Launch, Settings, read_checked, read_checked_lines
from pretrain.compare.runs import NOT_COMPARED
from pretrain.config.json_objects import read_json_object
from pretrain.config.settings import stored_settings


class Arm(NamedTuple):
    """Runs of one name, equal settings and different seeds, at equal progress."""

    row: TableRow  # its origin is the folder that holds the runs; no step: those of the runs differ
    seeds: Mapping[TableRow, int]  # of pre-training, by the row of the run


def find_arms(rows: Sequence[TableRow], trials: Sequence[EndedTrial]) -> list[Arm]:
    """Return the arms with two runs or more, in the order of the rows.

    Runs that are not there any more belong to none.

    Raises:
        ConfigError: a file of a run is damaged.
    """
    groups: dict[tuple[Any, ...], dict[TableRow, int]] = {}
    for row in rows:
        folder = run_folder(row, trials) if row.pretrained else None
        if folder is not None:
            member, seed = _read(folder, row.step)
            groups.setdefault(member, {})[row] = seed
    return [
        Arm(_row(member[0], list(seeds)), seeds)
        for member, seeds in groups.items()
        if len(set(seeds.values())) == len(seeds) > 1
    ]


def arm_scores(arm: Arm, runs: Sequence[RateScores]) -> RateScores:
    """Return the scores of an arm, with its runs in place of seeds of fine-tuning.

    Args:
        arm: that the runs belong to.
        runs: the scores on one task, at its best learning rate, of each run that has some.
    """
    return RateScores(
        None,
        [
            {
                split: {
                    metric: median
                    for metric in metrics
                    if (median := run.median(split, metric)) is not None
                }
                for split, metrics in run.finished[0].items()
            }
            for run in runs
            if run.median() not in (None, DIVERGED)
        ],
        sum(run.median() == DIVERGED for run in runs),
        len(arm.seeds),
    )


def _read(folder: Path, step: int | None) -> tuple[tuple[Any, ...], int]:
    """Return what a run shares with the others of its arm, its name first, and its seed."""
    settings = stored_settings(read_checked(folder / RUN_FILE, Settings))
    compared = {name: value for name, value in settings.items() if name not in NOT_COMPARED}
    launches = read_checked_lines(folder / "launches.jsonl", Launch)
    result = folder / RESULT_FILE
    is_end = result.is_file() and read_json_object(result, fix=LEAVE_OUT).get("step") == step
    text = launches[0]["training_data"] if launches else ""
    # A budget of hours reaches the end of a run at any step.
    member = (settings["name"], json.dumps(compared), text, None if is_end else step)
    return member, settings["seed"]


def _row(name: str, runs: Sequence[TableRow]) -> TableRow:
    steps = {row.step for row in runs}
    parent = os.path.commonpath([os.path.dirname(os.path.abspath(row.origin)) for row in runs])
    return TableRow(name, parent, steps.pop() if len(steps) == 1 else None)


def run_folder(row: TableRow, trials: Sequence[EndedTrial]) -> Path | None:
    """Return the folder of a run, also where it was moved together with its results.

    Raises:
        ConfigError: its run.json is damaged.
    """
    around = [folder for trial in trials if trial.row == row for folder in trial.folder.parents]
    for folder in (Path(row.origin), *dict.fromkeys(around)):
        file = folder / RUN_FILE
        if file.is_file() and row.model in (read_checked(file, Settings)["name"], folder.name):
            return folder
    return None
