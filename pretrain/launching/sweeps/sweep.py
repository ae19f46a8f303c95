"""A sweep: several arms, each with several seeds."""

import argparse
from collections.abc import Mapping
from pathlib import Path

from pretrain.config.errors import ConfigError
from pretrain.config.recipe import read_settings
from pretrain.config.settings import RunSettings
from pretrain.launching.given_words import laid_under, setting_words
from pretrain.launching.preparation import prepare_data
from pretrain.launching.sweeps.arms import Arm, SweepRun
from pretrain.launching.sweeps.budget import Budget, lengths, read_budget
from pretrain.launching.sweeps.checks import (
    refuse_equal_arms,
    refuse_incomparable_losses,
    refuse_layer_drop,
    refuse_names,
)
from pretrain.launching.sweeps.smoke import shrunk
from pretrain.launching.sweeps.spec import ArmSpec, Spec, spec_of
from pretrain.schedules.fitting import fitted

MOST_SEEDS = 1000  # of each arm: 1234 alone was meant to be a seed

DEFAULT_ARMS = ("bert_a", "bert_r", "tupe_r", "tupe_r_pld")


class Sweep:
    """The runs that a command line, or the spec that it names, asks for."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        """Read the spec and the recipes.

        Args:
            arguments: with `recipe` (the arms, or a spec), `seeds`, `budget`, `smoke` and the
                settings, which come before those of the spec.

        Raises:
            ConfigError: the spec, a recipe, a setting or the seeds are wrong, two arms have one
                name, an arm that of something else in the folder of a sweep, or losses of other
                meaning.
        """
        self.spec = spec_of(arguments.recipe or DEFAULT_ARMS)
        self.budget = _budget(arguments.budget) or _budget_of_spec(
            self.spec, is_smoke=arguments.smoke
        )
        self._given_budget: str | None = arguments.budget
        self._given_seeds: list[int] = arguments.seeds or []
        self._given_words = setting_words(arguments, without=("recipe", "name", "seed"))
        self._refuse_tuned_words()
        self.is_smoke_test: bool = arguments.smoke
        self._seed: str | None = vars(arguments).get("seed")
        self._arguments = shrunk(arguments) if self.is_smoke_test else arguments
        self._baseline = self._arm_before_budget(self.spec.arms[0])
        self.arms = [self.arm(given) for given in self.spec.arms]
        self._check_seeds()
        refuse_names(self.arms, num_seeds=len(self.seeds_of(self.arms[0])))
        refuse_layer_drop(self.arms)
        if not self.is_smoke_test:  # which can make recipes equal
            refuse_equal_arms(self.arms)
        refuse_incomparable_losses(self.arms)

    @property
    def words(self) -> list[str]:
        """Return the command line of this sweep, without its name and machines."""
        seeds = ["--seeds", *map(str, self._given_seeds)] if self._given_seeds else []
        smoke = ["--smoke"] if self.is_smoke_test else []
        budget = [] if self._given_budget is None else ["--budget", self._given_budget]
        file = self.spec.file
        arms = [arm.recipe for arm in self.spec.arms] if file is None else [str(file)]
        return [*arms, *seeds, *budget, *smoke, *self._seed_words, *self._given_words]

    def asks_for_the_runs_of(self, other: "Sweep") -> bool:
        """Return whether all that is trained is the same."""
        return self._definition == other._definition

    @property
    def _definition(self) -> object:
        arms = [(arm.name, arm.recipe, arm.words, self.seeds_of(arm)) for arm in self.arms]
        return arms, self.spec.tuning, [arm.points for arm in self.spec.arms]

    def prepare(self, *, ranks: int | None) -> None:
        """Build the shards, which all arms share."""
        arm = self.arms[0]
        prepare_data(arm.settings, [arm.recipe, *arm.words], ranks=ranks)

    def arm(
        self, given: ArmSpec, values: Mapping[str, str] | None = None, *, share: float = 1.0
    ) -> Arm:
        """Return an arm with some values changed, as long as the budget allows.

        Args:
            given: the arm as it was written.
            values: words by setting.
            share: of its length, over which the schedule spans.
        """
        changes = dict(values or {})
        before = self._arm_before_budget(given, changes)
        if self.budget is not None:
            changes |= lengths(self.budget, before.settings, self._baseline.settings)
        if share < 1:
            changes |= _shortened(self._arm_before_budget(given, changes).settings, share)
        return self._arm_before_budget(given, changes)

    def runs(self, folder: Path, arms: list[Arm] | None = None) -> list[list[SweepRun]]:
        """Return the runs of each arm, by seed.

        Args:
            folder: of the sweep.
            arms: those of the sweep, if tuning has changed them.
        """
        return [self._runs_of(arm, folder) for arm in arms or self.arms]

    def seeds_of(self, arm: Arm) -> list[int]:
        """Return the seeds of the runs that are reported."""
        if len(self._given_seeds) > 1:
            return self._given_seeds
        asked = self._given_seeds[0] if self._given_seeds else self.spec.seeds
        if self.is_smoke_test and not self._given_seeds:
            asked = asked[:1] if isinstance(asked, tuple) else 1
        if isinstance(asked, tuple):
            return [*asked]
        return list(range(arm.settings.seed, arm.settings.seed + (asked or 1)))

    def _runs_of(self, arm: Arm, folder: Path) -> list[SweepRun]:
        seeds = self.seeds_of(arm)
        if len(seeds) == 1 and seeds[0] == arm.settings.seed:
            return [SweepRun(arm, folder / arm.name, (*self._seed_words, *arm.words))]
        return [
            SweepRun(arm, folder / f"{arm.name}-seed{seed}", ("--seed", str(seed), *arm.words))
            for seed in seeds
        ]

    def _arm_before_budget(self, given: ArmSpec, changes: Mapping[str, str] | None = None) -> Arm:
        own = argparse.Namespace(**{**vars(self._arguments), "recipe": given.recipe})
        vars(own).pop("name", None)  # that of the sweep
        words = {**self.spec.settings, **given.words}
        if own.corpus:
            words.pop("data.corpus", None)  # another name of it
        arguments = laid_under(own, words)
        arguments = argparse.Namespace(**{**vars(arguments), **(changes or {})})
        settings = read_settings(arguments)
        without = ("recipe", "seed")
        return Arm(
            given.name, given.recipe, settings, tuple(setting_words(arguments, without=without))
        )

    @property
    def _seed_words(self) -> list[str]:
        return [] if self._seed is None else ["--seed", self._seed]

    def _refuse_tuned_words(self) -> None:
        given = {word.removeprefix("--") for word in self._given_words} | {*self.spec.settings}
        tuning = self.spec.tuning
        tuned = [tuning.points_of(arm)[0].keys() for arm in self.spec.arms] if tuning else []
        for name in given & set().union(*tuned):
            raise ConfigError(f"{name} is given, and [tune] tries it; remove one of them")

    def _check_seeds(self) -> None:
        seeds = self._given_seeds
        given = " ".join(map(str, seeds))
        of_spec = self.spec.seeds
        if seeds == [0] or (not seeds and of_spec == 0):
            raise ConfigError("--seeds 0: give a number of seeds, or seeds from 0 on")
        if len(seeds) == 1 and seeds[0] > MOST_SEEDS:
            raise ConfigError(
                f"--seeds {given}: one number is how many seeds, at most {MOST_SEEDS:,}; one seed "
                f"of your choice is --seed {given}"
            )
        if isinstance(of_spec, int) and of_spec > MOST_SEEDS:
            raise ConfigError(f"seeds = {of_spec}: at most {MOST_SEEDS:,}; one seed is [{of_spec}]")
        for several in (seeds, of_spec if isinstance(of_spec, tuple) else ()):
            if len(several) != len(set(several)):
                raise ConfigError(f"--seeds {' '.join(map(str, several))}: a seed is given twice")
        if self._seed is not None and (len(seeds) > 1 or (not seeds and type(of_spec) is tuple)):
            raise ConfigError(
                f"--seed {self._seed} and --seeds {given}: give one of them; --seed 5 --seeds 3 "
                "are the seeds 5, 6 and 7"
            )


def _budget(text: str | None) -> Budget | None:
    return None if text is None else read_budget(text, "--budget")


def _budget_of_spec(spec: Spec, *, is_smoke: bool) -> Budget | None:
    """Return the budget of a spec; in a smoke test that of the tiny baseline."""
    budget = spec.budget
    if budget is None or not is_smoke:
        return budget
    return None if budget.unit == "seconds" else Budget(budget.unit, None)


def _shortened(settings: RunSettings, share: float) -> dict[str, str]:
    """Return what must be changed for a run of a share of the length, annealed to its end."""
    if settings.hours is not None:
        return {"hours": repr(settings.hours * share)}
    changes = fitted(settings, max(1, round(settings.steps * share)))
    return {name: repr(value) for name, value in changes.items()}
