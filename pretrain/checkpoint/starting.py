"""Whether a run may start in a folder, continue there, or is finished already.

Imports no torch: a command asks this before any other work.
"""

import math
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from pretrain.config.errors import ConfigError
from pretrain.config.json_objects import read_json_object

RUN_FILE, RESULT_FILE = "run.json", "result.json"

# A start that failed leaves these: the settings, which make a folder a run, are written last.
WRITTEN_BEFORE = ("lock", "tokenizer.json", "manifest.json", "ds_config.json", RUN_FILE)


class Finished(BaseModel):
    """The end of a run, as result.json has it."""

    model_config = ConfigDict(strict=True)

    step: int
    held_out_loss: float = math.nan


def refuse_to_start(folder: Path) -> None:
    """Refuse to start a run where there is one, or anything else.

    Raises:
        ConfigError: the folder holds a run or other files, or is a file.
    """
    if (folder / RUN_FILE).exists():
        continues = "; continue it with --resume"
        if (folder / RESULT_FILE).exists():
            continues = ", which is finished; lengthen it with --resume and more --steps"
        raise ConfigError(
            f"{folder} already holds a run{continues}, or choose another folder with --run-folder"
        )
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; choose a new folder with --run-folder")
    names = (entry.name.partition(".partial-")[0] for entry in folder.glob("*"))
    if other := sorted(name for name in names if name not in WRITTEN_BEFORE):
        raise ConfigError(
            f"{folder} holds {other[0]}, which is no part of a run; choose a new or empty folder "
            "with --run-folder"
        )


def finished(folder: Path) -> Finished | None:
    """Return the end of the run in a folder; None: it is not finished.

    Raises:
        ConfigError: result.json is damaged.
    """
    file = folder / RESULT_FILE
    if not file.exists():
        return None
    fix = "remove it, and resume the run"
    try:
        return Finished.model_validate(read_json_object(file, fix=fix))
    except ValidationError:
        raise ConfigError(f"{file} is damaged; {fix}") from None
