"""A sweep: several recipes, each with several seeds, trained one after the other and resumable."""

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from data_prep.files.program import shell_command
from pretrain.checkpoint.starting import RESULT_FILE, RUN_FILE
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import read_settings
from pretrain.config.settings import RunSettings
from pretrain.data.shards import shards_folder
from pretrain.launching.given_words import setting_words
from pretrain.launching.launch_plan import LaunchPlan
from pretrain.launching.preparation import prepare_data

DEFAULT_ARMS = ("bert_a", "bert_r", "tupe_r", "tupe_r_pld")


@dataclass(frozen=True)
class Arm:
    """A recipe of the sweep."""

    recipe: str
    settings: RunSettings

    @property
    def name(self) -> str:
        """Return the name of its folder."""
        return Path(self.recipe).name.removesuffix(".toml")


@dataclass(frozen=True)
class SweepRun:
    """One run: an arm with a seed."""

    recipe: str
    folder: Path
    words: tuple[str, ...]  # the settings

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to train."""
        return (self.folder / RESULT_FILE).exists()

    @property
    def has_begun(self) -> bool:
        """Whether it has to be resumed."""
        return (self.folder / RUN_FILE).exists()


class Sweep:
    """The runs that a command line asks for."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        """Read the recipes.

        Args:
            arguments: with `recipe` (the arms), `seeds` and the settings.

        Raises:
            ConfigError: a recipe, a setting or the seeds are wrong, or two arms have one name.
        """
        self.seeds: list[int] = arguments.seeds or []
        self._words = setting_words(arguments, without=("recipe", "name", "seed"))
        seed = vars(arguments).get("seed")
        self._seed_words = [] if seed is None else ["--seed", seed]
        self.arms = [_arm(recipe, arguments) for recipe in arguments.recipe or DEFAULT_ARMS]
        names = [arm.name for arm in self.arms]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"two arms are called {name}; give each recipe a name of its own")
        self._check_seeds(seed)

    @property
    def words(self) -> list[str]:
        """Return the command line of this sweep, without its name and machines."""
        seeds = ["--seeds", *map(str, self.seeds)] if self.seeds else []
        return [*(arm.recipe for arm in self.arms), *seeds, *self._seed_words, *self._words]

    def prepare(self, *, ranks: int | None) -> None:
        """Build the shards of all arms; arms of the same data share them."""
        first_arms = {str(shards_folder(arm.settings)): arm for arm in reversed(self.arms)}
        for arm in reversed(first_arms.values()):
            prepare_data(arm.settings, [arm.recipe, *self._words], ranks=ranks)

    def runs(self, folder: Path) -> list[list[SweepRun]]:
        """Return the runs of each arm, by seed."""
        return [self._runs_of(arm, folder) for arm in self.arms]

    def _runs_of(self, arm: Arm, folder: Path) -> list[SweepRun]:
        seeds = self._seeds_of(arm)
        if len(seeds) == 1:
            words = (*self._seed_words, *self._words)
            return [SweepRun(arm.recipe, folder / arm.name, words)]
        return [
            SweepRun(
                arm.recipe,
                folder / f"{arm.name}-seed{seed}",
                ("--seed", str(seed), *self._words),
            )
            for seed in seeds
        ]

    def _seeds_of(self, arm: Arm) -> list[int]:
        if len(self.seeds) > 1:
            return self.seeds
        first, count = arm.settings.seed, (self.seeds or [1])[0]
        return list(range(first, first + count))

    def _check_seeds(self, first: str | None) -> None:
        given = " ".join(map(str, self.seeds))
        if self.seeds == [0] or any(seed < 0 for seed in self.seeds):
            raise ConfigError(f"--seeds {given}: give a number of seeds, or seeds from 0 on")
        if len(self.seeds) != len(set(self.seeds)):
            raise ConfigError(f"--seeds {given}: a seed is given twice")
        if len(self.seeds) > 1 and first is not None:
            raise ConfigError(
                f"--seed {first} and --seeds {given}: give one of them; --seed 5 --seeds 3 are "
                "the seeds 5, 6 and 7"
            )


class SweepFolder:
    """The folder of a sweep: the runs, what they were started with, and the report."""

    def __init__(self, name: str) -> None:
        """Refuse a name that is no folder's.

        Raises:
            ConfigError: it has other characters than letters, digits, and . _ -
        """
        if not re.fullmatch(r"\w[\w.-]*", name):
            raise ConfigError(f"--name {name!r}: use letters, digits, and . _ - only")
        self.name, self.path = name, Path("runs") / name
        self._file = self.path / "settings"  # the words of the sweep, each ended by a NUL

    def resume_command(self, launch_words: Sequence[str]) -> str:
        """Return the line that continues the sweep, on the same GPUs."""
        return shell_command("sweep", "--resume", "--name", self.name, *launch_words)

    def check_is_new(self) -> None:
        """Refuse to start where there is something already.

        Raises:
            ConfigError: the folder holds a sweep, a run, or anything else.
        """
        others = [entry for entry in self.path.glob("*") if entry != self._file]
        if self.has_begun:
            raise ConfigError(
                f"{self.path} holds a comparison; continue it with --resume --name {self.name}, or "
                "choose another name"
            )
        if others:
            raise ConfigError(
                f"{self.path} holds {min(others).name}, which is no part of a comparison; choose "
                "another name"
            )

    @property
    def has_begun(self) -> bool:
        """Whether a run was started in it."""
        return any(self.path.glob(f"*/{RUN_FILE}"))

    def saved_words(self) -> list[str] | None:
        """Return the words that the sweep was started with; None if they were not saved.

        Raises:
            ConfigError: there is no sweep.
        """
        if (self.path / RUN_FILE).exists():
            command = shell_command("train", self.path, "--resume")
            raise ConfigError(f"{self.path} is a run, not a comparison; resume it with: {command}")
        if not self.path.is_dir():
            raise ConfigError(f"there is no comparison {self.path} to resume; see runs/")
        if not self._file.exists():
            return None
        return self._file.read_text().split("\0")[:-1]

    def save_words(self, words: Sequence[str]) -> None:
        """Save the words, for a sweep that is resumed."""
        self.path.mkdir(parents=True, exist_ok=True)
        self._file.write_text("".join(f"{word}\0" for word in words))


def train(runs: Sequence[SweepRun], plan: LaunchPlan) -> None:
    """Train the runs that are not finished, each in new processes.

    Raises:
        SystemExit: a run failed, or a signal asked to stop.
        ConfigError: a run ended without a result.
    """
    for number, run in enumerate(runs, 1):
        print(f"[{number}/{len(runs)}] {run.folder.name}: ", end="")
        if run.is_finished:
            print("finished before")
            continue
        print(f"{'resuming' if run.has_begun else 'starting'} in {run.folder}")
        again = ["--resume"] if run.has_begun else []
        words = [run.recipe, *run.words, "--run-folder", str(run.folder), *again]
        plan.train(words, run.folder)


def _arm(recipe: str, arguments: argparse.Namespace) -> Arm:
    given = {**vars(arguments), "recipe": recipe}
    given.pop("name", None)  # that of the sweep
    return Arm(recipe, read_settings(argparse.Namespace(**given), arguments.source))
