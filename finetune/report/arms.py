"""Arms of a table: pre-training runs that differ in nothing but the seed.

The score of an arm is the median of the scores of its runs. A run whose score diverged counts as
worse than any score, as a seed of fine-tuning does; a run without a score is left out.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from finetune.report.run_folders import run_folder
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


class _Member(NamedTuple):
    name: str
    settings: str
    text: str  # digest of what is trained on
    progress: int | None  # None: the end of the run, which a budget of hours reaches at any step


def find_arms(rows: Sequence[TableRow], trials: Sequence[EndedTrial]) -> list[Arm]:
    """Return the arms with two runs or more, in the order of the rows.

    Runs that are not there any more belong to none.

    Raises:
        ConfigError: a file of a run is damaged.
    """
    groups: dict[_Member, dict[TableRow, int]] = {}
    for row in rows:
        folder = run_folder(row, trials) if row.pretrained else None
        if folder is not None:
            member, seed = _read(folder, row.step)
            groups.setdefault(member, {})[row] = seed
    return [
        Arm(_row(member.name, list(seeds)), seeds)
        for member, seeds in groups.items()
        if len(set(seeds.values())) == len(seeds) > 1
    ]


def arm_scores(arm: Arm, runs: Sequence[RateScores]) -> RateScores:
    """Return the scores of an arm, with its runs in place of seeds of fine-tuning.

    Args:
        arm: that the runs belong to.
        runs: the scores on one task, at its best learning rate, of each run that has some.
    """
    scored = [run for run in runs if run.median() not in (None, DIVERGED)]
    return RateScores(
        None,
        [_present({split: run.median(split) for split in run.finished[0]}) for run in scored],
        [
            {
                split: _present({name: run.of_metric(name).median(split) for name in metrics})
                for split, metrics in run.metrics[0].items()
            }
            for run in scored
        ],
        sum(run.median() == DIVERGED for run in runs),
        len(arm.seeds),
    )


def _present(medians: Mapping[str, float | None]) -> dict[str, float]:
    return {name: median for name, median in medians.items() if median is not None}


def _read(folder: Path, step: int | None) -> tuple[_Member, int]:
    """Return what a run shares with the others of its arm, and its seed."""
    settings = stored_settings(read_checked(folder / RUN_FILE, Settings))
    compared = {name: value for name, value in settings.items() if name not in NOT_COMPARED}
    launches = read_checked_lines(folder / "launches.jsonl", Launch)
    result = folder / RESULT_FILE
    is_end = result.is_file() and read_json_object(result, fix=LEAVE_OUT).get("step") == step
    member = _Member(
        settings["name"],
        json.dumps(compared),
        launches[0]["training_data"] if launches else "",
        None if is_end else step,
    )
    return member, settings["seed"]


def _row(name: str, runs: Sequence[TableRow]) -> TableRow:
    steps = {row.step for row in runs}
    parent = os.path.commonpath([os.path.dirname(os.path.abspath(row.origin)) for row in runs])
    return TableRow(name, parent, steps.pop() if len(steps) == 1 else None)
