"""A sweep of pre-training: several arms, each with several seeds, and its folder.

runs/NAME/ARM-seedN              a run folder for each seed
runs/NAME/trials/ARM-VALUE-seedN those of tuning
runs/NAME/report                 the comparison
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pretrain.checkpoint.changes import compared, refuse_changes
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import read_settings
from pretrain.config.run_files import RUN_FILE, has_ended
from pretrain.config.settings import OF_TEXT, RunSettings, as_json, flat
from pretrain.train.launching.given_words import setting_words
from pretrain.train.sweeps.budget import lengths, read_budget, shortened
from pretrain.train.sweeps.pool import unit_folder
from pretrain.train.sweeps.spec import ArmSpec, spec_of

REPORT, TRIALS = "report", "trials"  # beside the runs: folders
DEFAULT_ARMS = ["bert_a", "bert_r", "t5", "tupe_r", "tupe_r_pld"]


@dataclass(frozen=True)
class SweepArm(ArmSpec):
    """An arm of the sweep."""

    settings: RunSettings  # of its runs, apart from the seed
    command: tuple[str, ...]  # words of a command line, after the recipe, that give these settings


@dataclass(frozen=True)
class SweepRun:
    """One run: an arm with a seed."""

    arm: SweepArm
    seed: int
    folder: Path

    @property
    def settings(self) -> RunSettings:
        """Return those of its arm with its seed."""
        return self.arm.settings.model_copy(update={"seed": self.seed})

    @property
    def words(self) -> list[str]:
        """Return those of `tupelo` that train it, or go on with it."""
        own = ["--seed", str(self.seed), *self.arm.command, "--run-folder", str(self.folder)]
        return ["train", self.arm.recipe, *own, *(["--resume"] if self.has_begun else [])]

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to train: a run that diverged would diverge again."""
        return has_ended(self.folder)

    @property
    def has_begun(self) -> bool:
        """Whether it has to be resumed."""
        return (self.folder / RUN_FILE).exists()

    def refuse_other_settings(self) -> None:
        """Refuse a run that was begun with other settings, as before a recipe was changed.

        Raises:
            ConfigError: one differs that a resume refuses.
        """
        _, changes = compared(self.folder, self.settings, lengthen=True)
        refuse_changes(self.folder, changes, elastic=True, longer=False)


class Sweep:
    """The runs that a command line, or the spec that it names, asks for."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        """Read the spec and the recipes.

        Args:
            arguments: with `recipe` (the arms, or a spec), `seeds`, `budget` and the settings,
                which come before those of the spec.

        Raises:
            ConfigError: the spec, a recipe, a setting or the seeds are wrong, two arms have one
                name, an arm that of something else in the folder of a sweep, or losses of other
                meaning.
        """
        arguments.recipe = arguments.recipe or DEFAULT_ARMS
        self._arguments = arguments
        self.spec = spec_of(arguments.recipe, arguments.seeds or ())
        seed = vars(arguments).get("seed")
        if seed is not None and isinstance(self.spec.seeds, list):
            raise ConfigError(
                f"--seed {seed} and a list of seeds: give one of them; --seed 5 --seeds 3 are the "
                "seeds 5, 6 and 7"
            )
        self.budget = self.spec.budget
        if arguments.budget is not None:
            self.budget = read_budget(arguments.budget, "--budget")
        self._baseline = self._arm(self.spec.arms[0], {}).settings
        self.arms = [self.arm(given) for given in self.spec.arms]
        tuned = {name for arm in self.spec.arms for point in arm.points for name in point}
        given = {name for name, value in vars(arguments).items() if value is not None}
        given |= self.spec.settings.keys()
        if twice := tuned & (given | ({"steps"} if self.budget or "hours" in given else set())):
            raise ConfigError(f"{min(twice)} is given, and [tune] tries it; remove one of them")
        _refuse_equal_arms(self.arms)
        _refuse_incomparable_losses(self.arms)

    def arm(
        self, given: ArmSpec, values: Mapping[str, str] | None = None, *, share: float = 1.0
    ) -> SweepArm:
        """Return an arm with some values changed, as long as a `share` of the budget allows."""
        changes = dict(values or {})
        if self.budget is not None:
            changes |= lengths(self.budget, self._arm(given, changes).settings, self._baseline)
        if share < 1:
            changes |= shortened(self._arm(given, changes).settings, share)
        return self._arm(given, changes)

    def runs(self, folder: Path, arms: Sequence[SweepArm] = ()) -> list[list[SweepRun]]:
        """Return the runs of each arm, by seed; `arms`: those that tuning has changed."""
        return [
            [SweepRun(arm, n, unit_folder(folder, arm.name, n)) for n in self.seeds_of(arm)]
            for arm in arms or self.arms
        ]

    def seeds_of(self, arm: SweepArm) -> list[int]:
        """Return the seeds of the runs that are reported."""
        seeds = self.spec.seeds
        if isinstance(seeds, list):
            return seeds
        return list(range(arm.settings.seed, arm.settings.seed + seeds))

    def _arm(self, given: ArmSpec, changes: Mapping[str, str]) -> SweepArm:
        own = {**vars(self._arguments), "recipe": given.recipe}
        own.pop("name", None)  # that of the sweep
        words: dict[str, object] = {**self.spec.settings, **given.words}
        if own["corpus"] or "corpus" in words:
            words.pop("data.corpus", None)  # another name of it
        typed = {name: value for name, value in own.items() if value is not None}
        arguments = argparse.Namespace(**{**own, **words, **typed, **changes})
        settings = read_settings(arguments)
        command = tuple(setting_words(arguments, without=("recipe", "seed")))
        return SweepArm(given.name, given.recipe, given.words, given.points, settings, command)


def _refuse_equal_arms(arms: Sequence[SweepArm]) -> None:
    """Refuse an arm twice, or one with the name of another, or of a folder of a sweep."""
    found: dict[str, str] = {}
    for arm in arms:
        settings = as_json(arm.settings.model_copy(update={"name": ""}))
        if arm.name in (REPORT, TRIALS, *found.values()):
            raise ConfigError(f"an arm cannot be called {arm.name}: something else of the sweep is")
        if settings in found:
            raise ConfigError(
                f"{found[settings]} and {arm.name} have the same settings, so they are one "
                "arm; change one, or remove it (an option of the command line changes all)"
            )
        found[settings] = arm.name


def _refuse_incomparable_losses(arms: Sequence[SweepArm]) -> None:
    """Refuse, before hours of training, arms that a comparison refuses after them."""
    of_masks = ("data.masking", "data.masked_probability", "data.mask_shares")
    of_loss = ("objective", "evaluation.rows", "electra.", *of_masks)
    text = ("shards", "sequence_length", *OF_TEXT)
    of_text = (*(f"data.{name}" for name in text), "model.vocabulary_size")
    first = flat(arms[0].settings.model_dump())
    for arm in arms[1:]:
        own = flat(arm.settings.model_dump())
        shares_data = first["data.shards"] == own["data.shards"] is not None
        names = of_loss if shares_data else (*of_loss, *of_text)
        differing = [n for n in own if n.startswith(names) and own[n] != first[n]]
        if differing:
            raise ConfigError(
                f"{arms[0].name} and {arm.name} differ in {', '.join(differing)}, so their "
                "held-out losses cannot be compared; give all arms the same, or a sweep of their "
                "own with the same --budget, and compare the scores of fine-tuning"
            )
