"""Which models of a sweep stay: of each encoder on each task that of the chosen trial, or all.

A trial writes its model before its result, so that a sweep that is killed at any moment holds what
it needs to choose: the choice is made from the results on the disk, and made again by the same
command. It is that of the table: the best learning rate, and the seed with the median score. A
model with which another sweep began stays too.
"""

import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path, PurePath

from finetune.models.kept_model import MODEL_FOLDER, has_model, remove_model
from finetune.report.choice import chosen_trial
from finetune.report.score_table import default_rule
from finetune.results.result import SWEEP_FILE
from finetune.results.sweep_record import read_sweep_record
from finetune.results.sweep_results import read_cell
from finetune.sweep.trial import AGAIN, BEFORE, Trial
from pretrain.config.errors import ConfigError


def chosen_trials(folder: Path, trials: Iterable[Trial]) -> list[Trial]:
    """Return the chosen trial of each encoder on each task, from the results in the folder.

    None is chosen where a result is damaged.

    Args:
        folder: of the sweep.
        trials: name the encoders and tasks; the chosen one may be of an earlier command. Each of
            these has a result, or none of its encoder and task is chosen.

    Raises:
        ConfigError: grid.json is damaged.
    """
    chosen = []
    for trial in _cells(trials).values():
        try:
            found = _chosen(folder, trial)
        except ConfigError:
            continue
        if found is not None:
            chosen.append(found)
    return chosen


def remove_others(folder: Path, trials: Iterable[Trial]) -> list[str]:
    """Remove the models of all trials of these encoders and tasks but the chosen ones.

    None is removed where it cannot be known which are needed.

    Returns:
        Which others stay and why, for the user.
    """
    try:
        in_use = _models_in_use(folder)
    except ConfigError as error:
        return [f"no model was removed: {error}"]
    remarks = []
    for cell, trial in _cells(trials).items():
        try:
            chosen = _chosen(folder, trial)
        except ConfigError as error:
            remarks.append(f"no model of {cell} was removed: {error}")
            continue
        for begins in (AGAIN, BEFORE):  # of a killed process
            for remains in (folder / cell).glob(f"lr_*/{begins}*"):
                shutil.rmtree(remains, ignore_errors=True)
        for place in sorted((folder / cell).glob("lr_*/seed_*")):
            model = place.relative_to(folder) / MODEL_FOLDER
            if chosen is not None and model.parent == chosen.folder:
                continue
            if model not in in_use:
                remove_model(place)
            elif has_model(place):
                remarks.append(f"{folder / model} stays: {in_use[model]} began with it")
    return remarks


def _cells(trials: Iterable[Trial]) -> dict[Path, Trial]:
    return {trial.group: trial for trial in trials}


def _chosen(folder: Path, trial: Trial) -> Trial | None:
    """Return the chosen trial of the same encoder and task; reads the results of no other."""
    record = read_sweep_record(folder)
    ended = read_cell(folder, trial.group, record.metrics if record else {})
    rule = default_rule(record.tasks if record else [trial.task.name])
    choice = chosen_trial(ended, rule).trial if ended else None
    if choice is None:
        return None
    return replace(trial, learning_rate=choice.result.learning_rate, seed=choice.result.seed)


def _models_in_use(folder: Path) -> dict[PurePath, Path]:
    """Return the models with which sweeps beside this one began, and such a sweep.

    A model goes by the end of its path, as the run may have been moved since then.

    Raises:
        ConfigError: the grid.json of one is damaged.
    """
    sweep, found = folder.resolve(), {}
    beside = {sweep.parent, folder.absolute().parent}  # two where the folder is a link
    for file in sorted(file for parent in beside for file in parent.glob(f"*/{SWEEP_FILE}")):
        text = file.read_text(encoding="utf-8", errors="replace")
        if f"/{sweep.name}/" not in text and "/lr_" not in text:
            continue  # whatever is wrong with it, it is no concern of this sweep
        record = read_sweep_record(file.parent)
        for model in record.models if record else ():
            *_, name, task, encoder, rate, seed, last = ("",) * 6 + PurePath(model.source).parts
            if name == sweep.name or _may_be_in(sweep, Path(model.source)):
                found[PurePath(task, encoder, rate, seed, last)] = file.parent
    return found


def _may_be_in(sweep: Path, source: Path) -> bool:
    """Return whether a model was recorded by a link to the sweep, or by a name it had before."""
    try:
        return sweep in source.resolve(strict=True).parents
    except (OSError, RuntimeError):  # it is not there, may not be seen, or links go in a circle
        return True
