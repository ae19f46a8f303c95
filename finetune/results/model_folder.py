"""Which folders hold a fine-tuned model: `model` in that of a trial. Imports no torch."""

import shutil
from pathlib import Path

from data_prep.files.program import shell_command
from pretrain.config.errors import ConfigError
from pretrain.config.json_objects import read_json_object
from pretrain.config.settings.transformers_config import CONFIG_FILE

MODEL_FOLDER = "model"  # in the folder of a trial
FINE_TUNED = "tupelo_fine_tuned"  # the entry of config.json
PARTIAL, REMOVED = ".partial", ".removed"
MOST_NAMED = 10  # in a message


def has_model(trial: Path) -> bool:
    """Return whether the folder of a trial holds its model."""
    return is_model(trial / MODEL_FOLDER)


def remove_model(trial: Path) -> None:
    """Remove the model of a trial, and what a killed process left of one."""
    folder = trial / MODEL_FOLDER
    removed = folder.with_suffix(REMOVED)
    shutil.rmtree(removed, ignore_errors=True)
    if folder.is_dir():
        folder.rename(removed)  # what is removed halfway is not taken for a model
    for remains in (removed, folder.with_suffix(PARTIAL)):
        shutil.rmtree(remains, ignore_errors=True)


def kept_folder(place: Path) -> Path:
    """Return the folder of the only fine-tuned model at or below a place.

    Raises:
        ConfigError: there is none, or there are several.
    """
    below = sorted(file.parent for file in place.rglob(CONFIG_FILE))
    found = [one for one in below if one.suffix not in (PARTIAL, REMOVED) and is_model(one)]
    if len(found) > 1:
        named = ", ".join(map(str, found[:MOST_NAMED]))
        raise ConfigError(
            f"{place} holds {len(found)} fine-tuned models; name the one that you mean: {named}"
        )
    if not found:
        command = shell_command("finetune", "run", "RUN", "--keep", "best")
        lack = "holds no fine-tuned model" if place.exists() else "does not exist"
        raise ConfigError(f"{place} {lack}; one is kept by: {command}")
    return found[0]


def is_model(folder: Path) -> bool:
    """Return whether a folder is that of a fine-tuned model.

    Raises:
        ConfigError: its config.json is damaged.
    """
    file = folder / CONFIG_FILE
    # Exports of before have an entry of that name without a model.
    return file.is_file() and "model" in (read_json_object(file).get(FINE_TUNED) or {})
