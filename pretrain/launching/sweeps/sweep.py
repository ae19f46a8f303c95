"""A sweep: several arms, each with several seeds."""

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from data_prep.files.program import shell_command
from data_prep.files.quoting import quoted
from pretrain.checkpoint.starting import RESULT_FILE, RUN_FILE
from pretrain.compare.run_files import was_stopped_by_anomaly
from pretrain.config.errors import ConfigError
from pretrain.config.json_objects import read_json_object
from pretrain.config.recipe import read_settings
from pretrain.config.settings import RunSettings, as_json, flat
from pretrain.data.shards import existing_shards, num_held_out_rows, shards_folder
from pretrain.launching.given_words import laid_under, setting_words
from pretrain.launching.preparation import prepare_data
from pretrain.launching.sweeps.budget import Budget, lengths, read_budget
from pretrain.launching.sweeps.folder import OTHERS
from pretrain.launching.sweeps.smoke import shrunk
from pretrain.launching.sweeps.spec import ArmSpec, spec_of
from pretrain.reports.words import listed
from pretrain.schedules.fitting import fitted
from pretrain.schedules.layer_drop import check_layer_drop

MOST_SEEDS = 1000  # of each arm: 1234 alone was meant to be a seed

DEFAULT_ARMS = ("bert_a", "bert_r", "tupe_r", "tupe_r_pld")

MASKING = (
    "data.masking",
    "data.masked_probability",
    "data.mean_span_words",
    "data.mask_token_share",
    "data.random_token_share",
)


# Beginnings of the names of settings that may not change while a sweep is trained.
OF_RESULT = (
    *("steps", "hours", "objective", "restarts_after", "batch.global_sequences"),
    *("model.", "learning_rate.", "optimizer.", "electra.", *MASKING),
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
    folder: Path
    words: tuple[str, ...]  # the settings, with the seed

    @property
    def recipe(self) -> str:
        """Return what `tupelo train` is given."""
        return self.arm.recipe

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to train: a run that diverged would diverge again."""
        return (self.folder / RESULT_FILE).exists() or was_stopped_by_anomaly(self.folder)

    @property
    def has_begun(self) -> bool:
        """Whether it has to be resumed."""
        return (self.folder / RUN_FILE).exists()

    def refuse_other_settings(self) -> None:
        """Refuse a finished run of what the sweep does not ask for, such as after a recipe changed.

        Raises:
            ConfigError: a setting differs that the result depends on.
        """
        found = flat(read_json_object(self.folder / RUN_FILE))
        for name, value in flat(json.loads(as_json(self.arm.settings))).items():
            if name.startswith(OF_RESULT) and found.get(name, value) != value:
                raise ConfigError(
                    f"{self.folder} is finished with {name}={quoted(found[name])}, and its sweep "
                    f"now asks for {quoted(value)}: has a recipe changed? Restore it, or begin the "
                    "sweep anew with another name"
                )


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
        self.budget = _budget(arguments.budget) or self.spec.budget
        self._given_budget: str | None = arguments.budget
        self._given_seeds: list[int] = arguments.seeds or []
        self._given_words = setting_words(arguments, without=("recipe", "name", "seed"))
        self.is_smoke_test: bool = arguments.smoke
        self._seed: str | None = vars(arguments).get("seed")
        self._arguments = shrunk(arguments) if self.is_smoke_test else arguments
        self._baseline = self._arm_before_budget(self.spec.arms[0])
        self.arms = [self.arm(given) for given in self.spec.arms]
        self._check_seeds()
        self._check_names()
        self._check_layer_drop()
        self._check_differences()
        self._check_held_out_losses()

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
        settings = read_settings(arguments, arguments.source)
        without = ("recipe", "seed")
        return Arm(
            given.name, given.recipe, settings, tuple(setting_words(arguments, without=without))
        )

    @property
    def _seed_words(self) -> list[str]:
        return [] if self._seed is None else ["--seed", self._seed]

    def _check_names(self) -> None:
        names = [arm.name for arm in self.arms]
        for arm in self.arms:
            if names.count(arm.name) > 1:
                raise ConfigError(f"two arms are called {arm.name}; give each a name of its own")
            if len(self.seeds_of(arm)) == 1 and arm.name in OTHERS:
                raise ConfigError(
                    f"an arm cannot be called {arm.name}: a comparison has {listed(OTHERS)} "
                    "in its folder; rename the recipe"
                )

    def _check_layer_drop(self) -> None:
        """Refuse, before any arm is trained, layer drop that one of them has too few blocks for."""
        for arm in self.arms:
            try:
                check_layer_drop(arm.settings.layer_drop, arm.settings.model.num_layers)
            except ConfigError as error:
                raise ConfigError(f"{arm.name}: {error}") from None

    def _check_differences(self) -> None:
        """Refuse a spec with an arm twice; a smoke test can make recipes equal."""
        if self.spec.file is None or self.is_smoke_test:
            return
        found: dict[RunSettings, str] = {}
        for arm in self.arms:
            settings = arm.settings.model_copy(update={"name": ""})
            if settings in found:
                raise ConfigError(
                    f"{found[settings]} and {arm.name} have the same settings, so they are one "
                    "arm; change one, or remove it (an option of the command line changes all)"
                )
            found[settings] = arm.name

    def _check_held_out_losses(self) -> None:
        """Refuse, before hours of training, arms that a comparison refuses after them."""
        first = self.arms[0]
        for arm in self.arms[1:]:
            if arm.settings.objective != first.settings.objective:
                raise ConfigError(
                    f"{first.name} has objective={first.settings.objective} and {arm.name} "
                    f"{arm.settings.objective}, so their held-out losses cannot be compared; train "
                    "each by a sweep of its own with the same --budget flops=AMOUNT, fine-tune "
                    "them, and compare scores: "
                    f"{shell_command('finetune', 'table', 'RUN', 'RUN', '--axis', 'flops')}"
                )
            differing = _differing_in_evaluation(first.settings, arm.settings)
            if differing:
                raise ConfigError(
                    f"{first.name} and {arm.name} differ in {listed(differing)}, so their held-out "
                    f"losses cannot be compared; give all arms the same, with --{differing[0]}"
                )

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


def _shortened(settings: RunSettings, share: float) -> dict[str, str]:
    """Return what must be changed for a run of a share of the length, annealed to its end."""
    if settings.hours is not None:
        return {"hours": repr(settings.hours * share)}
    changes = fitted(settings, max(1, round(settings.steps * share)))
    return {name: repr(value) for name, value in changes.items()}


def _differing_in_evaluation(first: RunSettings, other: RunSettings) -> list[str]:
    """Return the settings that differ, and that a held-out loss depends on besides the model.

    See `held_out_fingerprint`.
    """
    values, others = flat(first.model_dump()), flat(other.model_dump())
    names = [*MASKING, *(name for name in values if name.startswith("electra."))]
    places = [_shards_place(settings) for settings in (first, other)]
    if places[0] != places[1] or None in places:
        of_data = [name for name in values if name.startswith("data.") and name not in MASKING]
        names = [*of_data, "model.vocabulary_size", *names]
    differing = [name for name in names if values[name] != others[name]]
    if first.evaluation.rows != other.evaluation.rows:
        rows = [_held_out_rows(settings) for settings in (first, other)]
        differing += ["evaluation.rows"] if rows[0] != rows[1] else []
    return differing


def _shards_place(settings: RunSettings) -> Path | None:
    """Return the folder of the shards; None: the text is still to be named."""
    has_text = settings.data.corpus or settings.data.shards is not None
    return shards_folder(settings) if has_text else None


def _held_out_rows(settings: RunSettings) -> int:
    shards = existing_shards(settings)
    return settings.evaluation.rows if shards is None else num_held_out_rows(shards, settings)
