"""Which models of a sweep stay: of each encoder on each task that of the chosen trial, or all.

A trial writes its model before its result, so that a sweep that is killed at any moment holds what
it needs to choose: the choice is made from the results on the disk, and made again by the same
command. It is that of the table: the best learning rate, and the seed with the median score.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from finetune.models.kept_model import remove_model
from finetune.report.choice import chosen_trial
from finetune.report.score_table import score_table
from finetune.results.sweep_results import EndedTrial, read_sweep_results
from finetune.sweep.trial import Trial


def chosen_trials(folder: Path, trials: Iterable[Trial]) -> list[Trial]:
    """Return the chosen trial of each encoder on each task, from the results in the folder.

    Args:
        folder: of the sweep.
        trials: name the encoders and tasks; the chosen one may be of an earlier command. Each of
            these has a result, or none of its encoder and task is chosen.

    Raises:
        ConfigError: see `read_sweep_results`.
    """
    groups = {trial.group: trial for trial in trials}
    results = read_sweep_results([folder])
    table = score_table(results, step="all")
    found = {_group(trial, folder): trial for trial in results.trials}
    chosen = []
    for group, trial in groups.items():
        known = found.get(group)
        if known is None:
            continue
        ended = chosen_trial(table, results, known.row, known.result.task).trial
        if ended is not None:
            rate, seed = ended.result.learning_rate, ended.result.seed
            chosen.append(replace(trial, learning_rate=rate, seed=seed))
    return chosen


def remove_others(folder: Path, trials: Iterable[Trial], chosen: Sequence[Trial]) -> None:
    """Remove the models of all trials of these encoders and tasks but the chosen ones."""
    keeps = {folder / trial.folder for trial in chosen}
    for group in {trial.group for trial in trials}:
        for place in (folder / group).glob("lr_*/seed_*"):
            if place not in keeps:
                remove_model(place)


def _group(trial: EndedTrial, folder: Path) -> Path:
    return trial.folder.parents[1].relative_to(folder.resolve())
