"""Which models of a sweep stay: of each encoder on each task that of the chosen trial, or all.

A trial writes its model before its result, so that a sweep that is killed at any moment holds what
it needs to choose: the choice is made from the results on the disk, and made again by the same
command. It is that of the table: the best learning rate, and the seed with the median score.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from finetune.models.kept_model import remove_model
from finetune.report.score_table import default_rule
from finetune.report.scores import chosen_trial
from finetune.results.sweep_record import read_sweep_record
from finetune.results.sweep_results import read_cell
from finetune.sweep.trial import Trial


def chosen_trials(folder: Path, trials: Sequence[Trial]) -> list[Trial]:
    """Return the chosen trial of each encoder on each task, from the results in the folder.

    Args:
        folder: of the sweep.
        trials: name the encoders and tasks; the chosen one may be of an earlier command.

    Raises:
        ConfigError: grid.json or a result is damaged.
    """
    record, chosen = read_sweep_record(folder), []
    assert record is not None
    rule = default_rule(record.tasks)
    for group, trial in {trial.group: trial for trial in trials}.items():
        ended = read_cell(folder, group, record.metrics)
        found = chosen_trial(ended, rule).trial if ended else None
        if found is not None:
            rate, seed = found.result.learning_rate, found.result.seed
            chosen.append(replace(trial, learning_rate=rate, seed=seed))
    return chosen


def remove_others(folder: Path, trials: Sequence[Trial]) -> None:
    """Remove the models of all trials of these encoders and tasks but the chosen ones."""
    chosen = {folder / trial.folder for trial in chosen_trials(folder, trials)}
    for group in {trial.group for trial in trials}:
        for place in (folder / group).glob("lr_*/seed_*"):
            if place not in chosen:
                remove_model(place)
