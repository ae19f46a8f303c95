"""A sweep: several recipes, each with several seeds."""

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

from data_prep.files.program import shell_command
from pretrain.checkpoint.starting import RESULT_FILE, RUN_FILE
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import read_settings
from pretrain.config.settings import RunSettings, flat
from pretrain.data.shards import existing_shards, num_held_out_rows, shards_folder
from pretrain.launching.given_words import setting_words
from pretrain.launching.preparation import prepare_data
from pretrain.launching.smoke import shrunk
from pretrain.launching.sweep_folder import GPUS_FILE, REPORT, SETTINGS_FILE
from pretrain.reports.words import listed

MOST_SEEDS = 1000  # of each arm: 1234 alone was meant to be a seed

DEFAULT_ARMS = ("bert_a", "bert_r", "tupe_r", "tupe_r_pld")

MASKING = (
    "data.masking",
    "data.masked_probability",
    "data.mean_span_words",
    "data.mask_token_share",
    "data.random_token_share",
)


@dataclass(frozen=True)
class Arm:
    """A recipe of the sweep."""

    recipe: str
    settings: RunSettings

    @property
    def name(self) -> str:
        """Return the name of its folder."""
        # A run folder can be given as "." too.
        return Path(os.path.abspath(self.recipe)).name.removesuffix(".toml")


@dataclass(frozen=True)
class SweepRun:
    """One run: an arm with a seed."""

    arm: Arm
    folder: Path
    words: tuple[str, ...]  # the settings

    @property
    def recipe(self) -> str:
        """Return what `tupelo train` is given."""
        return self.arm.recipe

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
            arguments: with `recipe` (the arms), `seeds`, `smoke` and the settings.

        Raises:
            ConfigError: a recipe, a setting or the seeds are wrong, two arms have one name, an
                arm that of something else in the folder of a sweep, or losses of other meaning.
        """
        self.seeds: list[int] = arguments.seeds or []
        self._given_words = setting_words(arguments, without=("recipe", "name", "seed"))
        self.is_smoke_test: bool = arguments.smoke
        if self.is_smoke_test:
            arguments = shrunk(arguments)
        self.setting_words = setting_words(arguments, without=("recipe", "name", "seed"))
        seed = vars(arguments).get("seed")
        self._seed_words = [] if seed is None else ["--seed", seed]
        self.arms = [_arm(recipe, arguments) for recipe in arguments.recipe or DEFAULT_ARMS]
        self._check_seeds(seed)
        self._check_names()
        self._check_held_out_losses()

    @property
    def words(self) -> list[str]:
        """Return the command line of this sweep, without its name and machines."""
        seeds = ["--seeds", *map(str, self.seeds)] if self.seeds else []
        smoke = ["--smoke"] if self.is_smoke_test else []
        arms = [arm.recipe for arm in self.arms]
        return [*arms, *seeds, *smoke, *self._seed_words, *self._given_words]

    def prepare(self, *, ranks: int | None) -> None:
        """Build the shards, which all arms share."""
        arm = self.arms[0]
        prepare_data(arm.settings, [arm.recipe, *self.setting_words], ranks=ranks)

    def runs(self, folder: Path) -> list[list[SweepRun]]:
        """Return the runs of each arm, by seed."""
        return [self._runs_of(arm, folder) for arm in self.arms]

    def _runs_of(self, arm: Arm, folder: Path) -> list[SweepRun]:
        seeds = self._seeds_of(arm)
        if len(seeds) == 1:
            words = (*self._seed_words, *self.setting_words)
            return [SweepRun(arm, folder / arm.name, words)]
        return [
            SweepRun(
                arm,
                folder / f"{arm.name}-seed{seed}",
                ("--seed", str(seed), *self.setting_words),
            )
            for seed in seeds
        ]

    def _seeds_of(self, arm: Arm) -> list[int]:
        if len(self.seeds) > 1:
            return self.seeds
        first, count = arm.settings.seed, (self.seeds or [1])[0]
        return list(range(first, first + count))

    def _check_names(self) -> None:
        names = [arm.name for arm in self.arms]
        for arm in self.arms:
            if names.count(arm.name) > 1:
                raise ConfigError(
                    f"two arms are called {arm.name}; give each recipe a name of its own"
                )
            others = (REPORT, SETTINGS_FILE, GPUS_FILE)
            if len(self._seeds_of(arm)) == 1 and arm.name in others:
                raise ConfigError(
                    f"an arm cannot be called {arm.name}: a comparison has {listed(others)} "
                    "in its folder; rename the recipe"
                )

    def _check_held_out_losses(self) -> None:
        """Refuse, before hours of training, arms that a comparison refuses after them."""
        first = self.arms[0]
        for arm in self.arms[1:]:
            if arm.settings.objective != first.settings.objective:
                raise ConfigError(
                    f"{first.name} has objective={first.settings.objective} and {arm.name} "
                    f"{arm.settings.objective}, so their held-out losses cannot be compared; train "
                    f"them one by one, fine-tune them, and compare scores with "
                    f"{shell_command('finetune', 'table', 'RUN', 'RUN')}"
                )
            differing = _differing_in_evaluation(first.settings, arm.settings)
            if differing:
                raise ConfigError(
                    f"{first.name} and {arm.name} differ in {listed(differing)}, so their held-out "
                    f"losses cannot be compared; give all arms the same, with --{differing[0]}"
                )

    def _check_seeds(self, first: str | None) -> None:
        given = " ".join(map(str, self.seeds))
        if self.seeds == [0]:
            raise ConfigError(f"--seeds {given}: give a number of seeds, or seeds from 0 on")
        if len(self.seeds) == 1 and self.seeds[0] > MOST_SEEDS:
            raise ConfigError(
                f"--seeds {given}: one number is how many seeds, at most {MOST_SEEDS:,}; one seed "
                f"of your choice is --seed {given}"
            )
        if len(self.seeds) != len(set(self.seeds)):
            raise ConfigError(f"--seeds {given}: a seed is given twice")
        if len(self.seeds) > 1 and first is not None:
            raise ConfigError(
                f"--seed {first} and --seeds {given}: give one of them; --seed 5 --seeds 3 are "
                "the seeds 5, 6 and 7"
            )


def _arm(recipe: str, arguments: argparse.Namespace) -> Arm:
    given = {**vars(arguments), "recipe": recipe}
    given.pop("name", None)  # that of the sweep
    return Arm(recipe, read_settings(argparse.Namespace(**given), arguments.source))


def _differing_in_evaluation(first: RunSettings, other: RunSettings) -> list[str]:
    """Return the settings that differ, and that a held-out loss depends on besides the model.

    See `held_out_fingerprint`.
    """
    values, others = flat(first.model_dump()), flat(other.model_dump())
    names = [*MASKING, *(name for name in values if name.startswith("electra."))]
    if shards_folder(first) != shards_folder(other):
        of_data = [name for name in values if name.startswith("data.") and name not in MASKING]
        names = [*of_data, "model.vocabulary_size", *names]
    differing = [name for name in names if values[name] != others[name]]
    if first.evaluation.rows != other.evaluation.rows:
        rows = [_held_out_rows(settings) for settings in (first, other)]
        differing += ["evaluation.rows"] if rows[0] != rows[1] else []
    return differing


def _held_out_rows(settings: RunSettings) -> int:
    shards = existing_shards(settings)
    return settings.evaluation.rows if shards is None else num_held_out_rows(shards, settings)
