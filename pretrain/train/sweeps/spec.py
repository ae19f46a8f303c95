"""A sweep in words: arms with their settings, and seeds; from a command line or a TOML file.

`tupelo sweep --help` shows such a file. What an arm has under `tune` it tries instead of [tune].
"""

import itertools
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator

from data_prep.command_line import explain, setting_fields
from data_prep.files.quoting import quoted
from pretrain.config.errors import ConfigError, nearest
from pretrain.config.recipe_files import sweep_file, toml_in
from pretrain.config.settings import RunSettings, flat
from pretrain.train.sweeps.budget import read_budget
from pretrain.train.sweeps.pool import name_at

NAME = re.compile(r"\w[\w.-]*")  # of an arm: its folder begins with it
MOST_SEEDS = 1000  # of each arm: 1234 alone was meant to be a seed

# Of a sweep and its runs, not of an arm.
NOT_OF_ARMS = {"name": "it is the name of the arm", "seed": "give seeds at the top"}

Point = Mapping[str, str]  # of a grid: a setting and its word, of each


def _checked(seeds: int | list[int]) -> int | list[int]:
    if isinstance(seeds, int):
        is_right = 0 < seeds <= MOST_SEEDS
    else:
        is_right = len({*seeds}) == len(seeds) > 0 and 0 <= min(seeds) <= max(seeds) < 1 << 63
    if not is_right:
        raise ValueError(
            f"seeds {seeds}: give how many, at most {MOST_SEEDS:,}, or a list of whole numbers "
            "below 2^63, each once; one of your choice is --seed N"
        )
    return seeds


class _Table(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")

    @property
    def settings(self) -> dict[str, Any]:
        """Return what is no field: settings of runs."""
        return self.model_extra or {}


class ArmTable(_Table):
    """An arm, or several."""

    recipe: str
    values: dict[str, Any] = {}
    tune: dict[str, Any] = {}


class TuneTable(_Table):
    """What every arm tries before its runs: its settings."""

    seeds: int = Field(1, ge=1)  # of each trial; none of them is one that is reported
    share: float = Field(1.0, gt=0, le=1)  # length of a trial as a share of that of a run


class SpecTables(BaseModel):
    """The content of a spec."""

    model_config = ConfigDict(strict=True, extra="forbid")

    seeds: Annotated[int | list[int], AfterValidator(_checked)] = 1
    budget: str | None = None
    settings: dict[str, Any] = {}
    arms: dict[str, ArmTable] = Field(min_length=1)
    tune: TuneTable = TuneTable()

    @field_validator("arms", mode="before")
    @classmethod
    def _read_recipes(cls, arms: Any) -> Any:
        if not isinstance(arms, dict):
            return arms
        return {n: {"recipe": arm} if isinstance(arm, str) else arm for n, arm in arms.items()}


@dataclass(frozen=True)
class ArmSpec:
    """An arm as it was written: a recipe, and what is changed."""

    name: str
    recipe: str  # what `tupelo train` is given
    words: Mapping[str, str]  # value of each changed setting, as the command line takes it
    # The grid that is tried before its runs; none: the sweep tunes nothing.
    points: tuple[Point, ...]


class Spec:
    """A sweep as it was written."""

    def __init__(self, tables: SpecTables, file: Path | None = None) -> None:
        """Read the settings in the tables of a file; None: those of a command line.

        Raises:
            ConfigError: a name or a value is wrong.
        """
        self.tuning, self.seeds = tables.tune, tables.seeds
        self.settings = as_words(tables.settings, f"{file}: [settings]")
        budget = tables.budget
        self.budget = None if budget is None else read_budget(budget, f"{file}: budget")
        tried = grid(tables.tune.settings, f"{file}: [tune]") if tables.tune.settings else ()
        if not tried and "tune" in tables.model_fields_set:
            raise ConfigError(f"{file}: [tune] names no setting, such as optimizer.epsilon")
        self.arms = [
            arm
            for name, table in tables.arms.items()
            for arm in _arms(name, table, tried, f"{file}: arm {quoted(name)}")
        ]


def spec_of(recipes: Sequence[str], seeds: Sequence[int] = ()) -> Spec:
    """Return what the positionals of a command line ask for: recipes, or one spec.

    Args:
        recipes: the positionals.
        seeds: one number is a count; more are the seeds, before those of the spec; none: its own.

    Raises:
        ConfigError: the spec is wrong, or it is not alone; two recipes have one name.
    """
    file = next(filter(None, map(sweep_file, recipes)), None)
    if file is not None and len(recipes) > 1:
        raise ConfigError(
            f"{file.stem} is a sweep, which names its arms itself; give it alone, or recipes"
        )
    if file is not None:
        tree = toml_in(file)
        for name in (tree.keys() & RunSettings.model_fields) - SpecTables.model_fields.keys():
            raise ConfigError(f"{file}: {name} is a setting of runs; put it under [settings]")
    else:
        # A run folder can be given as "." too.
        names = [Path(os.path.abspath(recipe)).name.removesuffix(".toml") for recipe in recipes]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"two arms are called {name}; give each a name of its own")
        tree = {"arms": {name: {"recipe": each} for name, each in zip(names, recipes, strict=True)}}
    if seeds:
        tree["seeds"] = [*seeds] if len(seeds) > 1 else seeds[0]
    try:
        return Spec(SpecTables(**tree), file)
    except ValidationError as error:
        place = "--seeds" if seeds and error.errors()[0]["loc"][0] == "seeds" else file
        raise ConfigError(f"{place}: {explain(error, [*setting_fields(SpecTables)])}") from None


def _arms(name: str, table: ArmTable, tried: tuple[Point, ...], place: str) -> list[ArmSpec]:
    """Return the arms of one entry: as many as it has values."""
    own = grid(table.tune, f"{place}: tune") if table.tune else tried
    if len(own) != len(tried):
        raise ConfigError(
            f"{place} tries {len(own)} combinations, and [tune] {len(tried)}; give as many, so "
            "that no arm has more trials"
        )
    arms, words = [], as_words(table.settings, place)
    for point in grid(table.values, f"{place}: values"):
        named = name_at(name, point.values())
        if not NAME.fullmatch(named):
            raise ConfigError(f"{place}: use letters, digits, and . _ - for names, not {named}")
        twice = (words.keys() & point.keys()) | ({*words, *point} & {*(own or [{}])[0]})
        if twice:
            raise ConfigError(f"{place} gives {min(twice)} twice, also as values or to tune")
        arms.append(ArmSpec(named, table.recipe, {"name": named, **words, **point}, own))
    return arms


def grid(tree: dict[str, Any], place: str) -> tuple[Point, ...]:
    """Return every combination of the values of settings; one without any, of no setting."""
    lists: dict[str, list[str]] = {}
    for name, values in flat(tree).items():
        if not isinstance(values, list) or not values:
            raise ConfigError(f"{place}: {name}={quoted(values)} is not a list of values")
        lists[name] = [as_words({name: value}, place)[name] for value in values]
        if len({*lists[name]}) < len(values):
            raise ConfigError(f"{place}: {name}={quoted(values)} has a value twice")
    return tuple(dict(zip(lists, each, strict=True)) for each in itertools.product(*lists.values()))


def as_words(tree: Mapping[str, Any], place: str) -> dict[str, str]:
    """Return settings as the command line takes them."""
    known = setting_fields(RunSettings)
    words = {}
    for name, value in flat(dict(tree)).items():
        if name in NOT_OF_ARMS:
            raise ConfigError(f"{place} has {name}: {NOT_OF_ARMS[name]}")
        if name not in known:
            raise ConfigError(f"{place}: there is no setting {name}{nearest(name, list(known))}")
        if not isinstance(value, bool | str | int | float | list):
            raise ConfigError(f"{place}: {name}={quoted(value)} is not a value of a setting")
        if isinstance(value, list):
            words[name] = ",".join(map(str, value)) or "none"
        else:
            words[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return words
