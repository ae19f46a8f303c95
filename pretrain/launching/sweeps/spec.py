"""A sweep in words: arms with their settings, and seeds; from a TOML file or a command line.

# The first line, for lists.
seeds = 3                                  # or [4, 8, 9]
budget = "flops"                           # see budget.py
[settings]                                 # of all arms
steps = 800
[arms]                                     # NAME = a recipe, or a table
baseline = "bert_r"
[arms.layer_drop]
recipe = "tupe_r_pld"
learning_rate.peak = 4e-3                  # a setting that this arm changes
values.layer_drop.theta_bar = [0.5, 0.9]   # an arm for each: layer_drop-0.5, layer_drop-0.9
tune.layer_drop.gamma = [0.01, 0.1, 1.0]   # instead of what [tune] tries, and as many
[tune]                                     # see tuning.py
learning_rate.peak = [1e-3, 2e-3, 4e-3]
"""

import itertools
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_prep.command_line import setting_fields
from data_prep.files.quoting import quoted
from pretrain.config.errors import ConfigError, nearest
from pretrain.config.recipe_files import TABLES, sweep_file, toml_in
from pretrain.config.settings import RunSettings, flat
from pretrain.launching.sweeps.budget import Budget, read_budget

NAME = re.compile(r"\w[\w.-]*")  # of an arm: its folder begins with it

# Of a sweep and its runs, not of an arm.
NOT_OF_ARMS = {"name": "it is the name of the arm", "seed": "give seeds at the top"}


@dataclass(frozen=True)
class ArmSpec:
    """An arm as it was written: a recipe, and what is changed.

    Attributes:
        name: of the arm.
        recipe: what `tupelo train` is given.
        words: value of each changed setting, as the command line takes it.
        points: combinations that it tries instead of those of `Tuning`; none: those.
    """

    name: str
    recipe: str
    words: Mapping[str, str]
    points: tuple[Mapping[str, str], ...] = ()

    @property
    def changes(self) -> str:
        """Return the changed settings in words."""
        return ", ".join(f"{n} {value}" for n, value in self.words.items() if n not in NOT_OF_ARMS)


@dataclass(frozen=True)
class Tuning:
    """How the settings of an arm are chosen before it is compared.

    Attributes:
        points: combinations of values that an arm tries, as words by setting, unless it has
            its own.
        seeds: of each trial; none of them is one of the seeds that are reported.
        share: length of a trial as a share of that of a run.
    """

    points: tuple[Mapping[str, str], ...]
    seeds: int
    share: float

    def points_of(self, arm: ArmSpec) -> tuple[Mapping[str, str], ...]:
        """Return what an arm tries."""
        return arm.points or self.points


@dataclass(frozen=True)
class Spec:
    """A sweep as it was written.

    Attributes:
        file: that it was read from; None: a command line.
        arms: the baseline first.
        settings: of all arms, as words; an arm comes before them.
        seeds: these; a number of them, from that of each recipe on; None: not given.
        budget: that all arms are given; None: each has its own.
        tuning: of each arm before its runs; None: none.
    """

    file: Path | None
    arms: tuple[ArmSpec, ...]
    settings: Mapping[str, str]
    seeds: tuple[int, ...] | int | None = None
    budget: Budget | None = None
    tuning: Tuning | None = None


def spec_of(recipes: Sequence[str]) -> Spec:
    """Return what the positionals of a command line ask for: recipes, or one spec.

    Raises:
        ConfigError: the spec is wrong, or it is not alone.
    """
    files = [sweep_file(recipe) for recipe in recipes]
    for recipe, file in zip(recipes, files, strict=True):
        if file is not None and len(recipes) > 1:
            raise ConfigError(
                f"{recipe} is a sweep, which names its arms itself; give it alone, or recipes"
            )
    if files and files[0] is not None:
        return read_spec(files[0])
    # A run folder can be given as "." too.
    names = [Path(os.path.abspath(recipe)).name.removesuffix(".toml") for recipe in recipes]
    arms = (ArmSpec(name, recipe, {}) for name, recipe in zip(names, recipes, strict=True))
    return Spec(None, tuple(arms), {})


def read_spec(file: Path) -> Spec:
    """Read a spec.

    Raises:
        ConfigError: it is not valid TOML, or a name or a value in it is wrong.
    """
    tree = toml_in(file)
    for name in tree:
        if name not in TABLES:
            hint = "; put it under [settings]" if name in RunSettings.model_fields else ""
            raise ConfigError(
                f"{file}: a sweep has no {quoted(name)}{hint or nearest(name, TABLES)}; it has "
                f"{', '.join(TABLES)}"
            )
    arms = _table(tree, "arms", file)
    if not arms:
        raise ConfigError(f"{file}: [arms] is empty; give a recipe: baseline = 'bert_r'")
    budget = tree.get("budget")
    tune = _table(tree, "tune", file)
    tuning = _tuning(tune, file) if tune else None
    read = tuple(arm for name, content in arms.items() for arm in _arms(name, content, file))
    for arm in read:
        _check_tuning(arm, tuning, f"{file}: arm {quoted(arm.name)}")
    return Spec(
        file,
        read,
        _words(_table(tree, "settings", file), f"{file}: [settings]"),
        _seeds(tree.get("seeds"), file),
        None if budget is None else read_budget(str(budget), f"{file}: budget"),
        tuning,
    )


def _check_tuning(arm: ArmSpec, tuning: Tuning | None, place: str) -> None:
    if tuning is None:
        if arm.points:
            raise ConfigError(f"{place} has tune, and the sweep has no [tune]; add it")
        return
    tried = tuning.points_of(arm)
    if len(tried) != len(tuning.points):
        raise ConfigError(
            f"{place} tries {len(tried)} combinations, and [tune] {len(tuning.points)}; give as "
            "many, so that no arm has more trials"
        )
    for setting in arm.words.keys() & tried[0].keys():
        raise ConfigError(f"{place} gives {setting}, and [tune] tries it")


def _arms(name: str, content: Any, file: Path) -> list[ArmSpec]:
    """Return the arms of one entry: as many as it has values."""
    place = f"{file}: arm {quoted(name)}"
    table = {"recipe": content} if isinstance(content, str) else content
    if not isinstance(table, dict) or not isinstance(table.get("recipe"), str):
        raise ConfigError(f"{place} names no recipe; write {name} = 'RECIPE', or recipe in a table")
    own = ("recipe", "values", "tune")
    changes = {key: value for key, value in table.items() if key not in own}
    words = _words(changes, place)
    lists = _lists(table.get("values", {}), f"{place}: values")
    tried = _lists(table.get("tune", {}), f"{place}: tune")
    for setting in lists.keys() & words.keys():
        raise ConfigError(f"{place} gives {setting} and values of it; remove one")
    arms, own_points = [], tuple(points(tried)) if tried else ()
    for point in points(lists):
        named = "-".join([name, *map(in_a_name, point.values())])
        if not NAME.fullmatch(named):
            raise ConfigError(f"{place}: use letters, digits, and . _ - for names, not {named}")
        arms.append(ArmSpec(named, table["recipe"], {"name": named, **words, **point}, own_points))
    return arms


def in_a_name(value: str) -> str:
    """Return the word of a value as it is part of the name of an arm."""
    return re.sub(r"[^\w.-]+", "_", value).strip("_")


def points(lists: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """Return every combination of the values of settings; one without any, of no setting."""
    return [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]


def _tuning(table: dict[str, Any], file: Path) -> Tuning:
    place = f"{file}: [tune]"
    seeds, share = table.get("seeds", 1), table.get("share", 1.0)
    own = ("seeds", "share")
    lists = _lists({name: value for name, value in table.items() if name not in own}, place)
    if type(seeds) is not int or seeds < 1:
        raise ConfigError(f"{place} seeds={quoted(seeds)}: give the number of seeds of a trial")
    if type(share) not in (int, float) or not 0 < share <= 1:
        raise ConfigError(f"{place} share={quoted(share)}: give a share of a run, such as 0.5")
    if not lists:
        raise ConfigError(f"{place} names no setting; such as: learning_rate.peak = [1e-3, 2e-3]")
    return Tuning(tuple(points(lists)), seeds, float(share))


def _seeds(value: Any, file: Path) -> tuple[int, ...] | int | None:
    numbers = value if isinstance(value, list) else [value]
    if value is None:
        return None
    if not numbers or any(type(number) is not int or number < 0 for number in numbers):
        raise ConfigError(f"{file}: seeds={quoted(value)}: give a number of seeds, or a list")
    return tuple(value) if isinstance(value, list) else int(value)


def _table(tree: dict[str, Any], name: str, file: Path) -> dict[str, Any]:
    table = tree.get(name, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{file}: {name}={quoted(table)} is not a table: [{name}]")
    return table


def _lists(tree: Any, place: str) -> dict[str, list[str]]:
    """Return the words of each value of settings that have a list of them."""
    if not isinstance(tree, dict):
        raise ConfigError(f"{place}={quoted(tree)}: give a list of values for a setting")
    lists = flat(tree)
    for name, values in lists.items():
        if not isinstance(values, list) or not values:
            raise ConfigError(f"{place}: {name}={quoted(values)} is not a list of values")
    each = {name: [_words({name: one}, place)[name] for one in lists[name]] for name in lists}
    for name, words in each.items():
        if len({*words}) < len(words):
            raise ConfigError(f"{place}: {name}={quoted(lists[name])} has a value twice")
    return each


def _words(tree: dict[str, Any], place: str) -> dict[str, str]:
    """Return settings as the command line takes them."""
    known = setting_fields(RunSettings)
    words = {}
    for name, value in flat(tree).items():
        if name in NOT_OF_ARMS:
            raise ConfigError(f"{place} has {name}: {NOT_OF_ARMS[name]}")
        if name not in known:
            raise ConfigError(f"{place}: there is no setting {name}{nearest(name, list(known))}")
        words[name] = _word(value, f"{place}: {name}")
    return words


def _word(value: Any, place: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list):
        return ",".join(map(str, value)) or "none"
    raise ConfigError(f"{place}={quoted(value)} is not a value of a setting")
