"""Where the pre-training runs of the rows of a table lie."""

from collections.abc import Sequence
from pathlib import Path

from finetune.results.sweep_results import EndedTrial, TableRow
from pretrain.checkpoint.starting import RUN_FILE
from pretrain.compare.run_files import Settings, read_checked


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
