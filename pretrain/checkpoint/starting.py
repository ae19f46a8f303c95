"""Whether a run may start in a folder.

Imports no torch: a command asks this before any other work.
"""

from pathlib import Path

from pretrain.config.errors import ConfigError
from pretrain.config.run_files import DS_CONFIG_FILE, RESULT_FILE, RUN_FILE

# A start that failed leaves these: the settings, which make a folder a run, are written last.
WRITTEN_BEFORE = ("lock", "tokenizer.json", "manifest.json", DS_CONFIG_FILE, RUN_FILE)


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
