"""The units of a pre-training sweep: arms, and runs of them with a seed, in a folder."""

import json
from dataclasses import dataclass
from pathlib import Path

from data_prep.files.quoting import quoted
from data_prep.removed import without_removed
from pretrain.checkpoint.starting import RUN_FILE
from pretrain.compare.run_files import has_ended
from pretrain.config.errors import ConfigError
from pretrain.config.json_objects import read_json_object
from pretrain.config.settings import RunSettings, as_json, flat, with_default_gamma

MASKING = ("data.masking", "data.masked_probability", "data.mask_shares")

# Beginnings of the names of settings that may not change while a sweep is trained.
OF_RESULT = (
    *("steps", "hours", "objective", "restarts_after", "batch.global_sequences"),
    *("initial_positions", "data.sequence_length", "evaluation.rows"),
    *("model.", "learning_rate.", "optimizer.", "layer_drop.", "electra.", *MASKING),
)


@dataclass(frozen=True)
class Arm:
    """An arm of the sweep.

    Attributes:
        name: of its folder.
        recipe: what `tupelo train` is given.
        settings: of its runs, apart from the seed.
        words: of a command line, after the recipe, that give these settings.
    """

    name: str
    recipe: str
    settings: RunSettings
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class SweepRun:
    """One run: an arm with a seed."""

    arm: Arm
    seed: int
    folder: Path

    @property
    def words(self) -> list[str]:
        """Return those of `tupelo` that train it, or go on with it."""
        again = ["--resume"] if self.has_begun else []
        own = ("--seed", str(self.seed), *self.arm.words, "--run-folder", str(self.folder), *again)
        return ["train", self.arm.recipe, *own]

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to train: a run that diverged would diverge again."""
        return has_ended(self.folder)

    @property
    def has_begun(self) -> bool:
        """Whether it has to be resumed."""
        return (self.folder / RUN_FILE).exists()

    def refuse_other_settings(self, found_in: Path) -> None:
        """Refuse a finished run, or its record, of what the sweep does not ask for.

        Raises:
            ConfigError: a setting differs that the result depends on, as after a recipe changed.
        """
        stored = without_removed(read_json_object(found_in / RUN_FILE))
        found = with_default_gamma(flat(stored), "layer_drop.")
        for name, value in flat(json.loads(as_json(self.arm.settings))).items():
            if name.startswith(OF_RESULT) and found.get(name, value) != value:
                raise ConfigError(
                    f"{found_in} is finished with {name}={quoted(found[name])}, and its sweep "
                    f"now asks for {quoted(value)}: has a recipe changed? Restore it, or begin the "
                    "sweep anew with another name"
                )
