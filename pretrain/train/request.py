"""What a start asks for: which run, in which folder, from its beginning or resumed.

Imports no torch: a start prints this, and refuses a folder, within the first second.
"""

from pathlib import Path
from typing import Literal, NamedTuple

from pretrain.checkpoint.changes import compared, refuse_changes
from pretrain.config.errors import ConfigError
from pretrain.config.run_files import RUN_FILE, hint_at_runs, refuse_to_start, result_of
from pretrain.config.settings import RunSettings

Beginning = Literal["start", "resume", "elastic"]


class RunRequest(NamedTuple):
    """A run as the command line asks for it."""

    settings: RunSettings
    folder: Path
    beginning: Beginning = "start"
    lengthen: bool = False  # whether a resumed run may become longer

    def describe(self) -> str:
        """Return the run in a line."""
        settings, model = self.settings, self.settings.model
        length = f"{settings.steps:,} steps" if settings.hours is None else f"{settings.hours:g} h"
        kind = f"{model.positions}, {model.norm} norm"
        if isinstance(model.transformers, dict):
            own = "" if model.positions == "own" else f" with {model.positions}"
            kind = f"{model.transformers['model_type']} of transformers{own}"
        return (
            f"{settings.name}: {model.num_layers} layers x {model.width}, {kind}; {length}; "
            f"run folder {self.folder}"
        )

    @property
    def is_finished(self) -> bool:
        """Whether a run that is resumed, and not lengthened, has reached its end."""
        resumes = self.beginning != "start" and not self.lengthen
        return resumes and result_of(self.folder) is not None

    def check_folder(self) -> None:
        """Refuse a folder that does not suit.

        Raises:
            ConfigError: a new run finds something in it, a resumed run finds no run.
        """
        if self.beginning != "start":
            if not (self.folder / RUN_FILE).exists():
                raise ConfigError(
                    f"{self.folder} holds no run to resume"
                    + (hint_at_runs(self.folder) or "; start it first")
                )
            return
        if self.lengthen:
            raise ConfigError("--lengthen belongs to --resume; a new run has the steps you give")
        refuse_to_start(self.folder)

    def check_settings(self) -> None:
        """Refuse settings with which the run cannot be resumed.

        Raises:
            ConfigError: they differ from before (they are named), it becomes longer unasked, or
                run.json is damaged.
        """
        if self.beginning != "start":
            longer, changes = compared(self.folder, self.settings, lengthen=self.lengthen)
            elastic = self.beginning == "elastic"
            refuse_changes(self.folder, changes, elastic=elastic, longer=longer)


def folder_of(given: Path | None, recipe: str, settings: RunSettings) -> Path:
    """Return the folder of a run: `given`, or that of the run that is named, or runs/NAME."""
    if given is not None:
        return given
    return Path(recipe) if (Path(recipe) / RUN_FILE).is_file() else Path("runs") / settings.name
