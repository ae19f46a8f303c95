"""Builds `RunSettings` from a recipe and the command line.

A recipe is a TOML file, which may extend another; `--section.name value` on the command line
overrides it. One of its `needs` must be given. The options and their help come from the fields of
the settings.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from data_prep.command_line import CommandParser, given_settings, setting_fields
from data_prep.files.quoting import plain
from pretrain.config.errors import ConfigError, nearest
from pretrain.config.recipe_files import (
    ARMS,
    TABLES,
    list_of_recipes,
    merged_settings,
    read_recipe,
    sweep_file,
    without_consequences,
)
from pretrain.config.settings import RunSettings, Section, explained, flat


def add_settings(parser: CommandParser, *, recipe_nargs: Literal["?", "*"] = "?") -> None:
    """Add RECIPE, --corpus and one option for every setting; `read_settings` reads the result.

    The arguments hold the parser too. With `recipe_nargs` "*" a command takes several recipes, or
    none.
    """
    parser.add_argument(
        "recipe",
        nargs=recipe_nargs,
        metavar="RECIPE",
        help="a name that tupelo recipes lists, a .toml file, or a run folder",
    )
    parser.add_argument(
        "--corpus", nargs="+", action="extend", metavar="SOURCE", help="the text: data.corpus"
    )
    texts = {"": str(RunSettings.__doc__)}
    defaults = vars(RunSettings()).items()
    texts |= {name: str(one.__doc__) for name, one in defaults if isinstance(one, Section)}
    parser.add_argument("--trust-remote-code", action="store_true", help="run model.folder's code")
    parser.add_settings(setting_fields(RunSettings), texts, _shown_values)
    recipe = "RECIPE" if recipe_nargs == "?" else "[RECIPE ...]"
    parser.usage = f"{parser.prog} {recipe} [OPTION ...] [--section.setting VALUE ...]"
    parser.set_defaults(parser=parser)


def _shown_values(arguments: argparse.Namespace) -> tuple[str, Mapping[str, Any]]:
    """Return the values of the recipe that is named, for --help."""
    recipe = arguments.recipe
    if isinstance(recipe, list):  # of a command that takes several
        recipe = recipe[0] if len(recipe) == 1 and sweep_file(recipe[0]) is None else None
    settings = settings_from({} if recipe is None else {**read_recipe(recipe), "needs": ()})
    whose = "those of a recipe that sets nothing" if recipe is None else f"the values of {recipe}"
    config = settings.model.transformers
    kind = config["model_type"] if isinstance(config, dict) else None
    return whose, flat(settings.model_dump()) | {"model.transformers": kind}


def read_settings(arguments: argparse.Namespace) -> RunSettings:
    """Build the settings: the recipe, overridden by the command line; see `add_settings`.

    Raises:
        ConfigError: no or an unknown recipe, an unknown name, a wrong type, or an impossible
            combination.
    """
    if arguments.recipe is None:
        print(f"{list_of_recipes()}\n", file=sys.stderr)
        raise ConfigError("name a recipe")
    tree = read_recipe(arguments.recipe)
    recipe = arguments.recipe
    known = {"needs", *RunSettings.model_fields, *setting_fields(RunSettings)}
    for table, content in tree.items():  # it may be a sweep whose arms are missing or misspelt
        if table in TABLES:
            raise ConfigError(f"{recipe}: [{table}] is of a sweep, which needs [{ARMS}] too")
        is_section = table in RunSettings.model_fields and isinstance(content, dict)
        for name in [f"{table}.{inner}" for inner in content] if is_section else [table]:
            if name not in known:
                near = nearest(name, [*known, *TABLES])
                raise ConfigError(f"{recipe}: there is no setting {plain(name)}{near}")
    given = given_settings(arguments, setting_fields(RunSettings))
    if arguments.corpus:
        given = merged_settings(given, {"data": {"corpus": tuple(arguments.corpus)}})
    tree = merged_settings(tree, given)
    if arguments.trust_remote_code and isinstance(model := tree.get("model", {}), dict):
        tree["model"] = {"transformers": {"trust_remote_code": True}} | model
    return settings_from(tree)


def settings_from(tree: dict[str, Any]) -> RunSettings:
    """Build the settings from those of a recipe.

    Raises:
        ConfigError: a name is unknown, a type is wrong, they do not go together, or none is given
            of those that the recipe needs.
    """
    given, needs = flat(tree), tree.get("needs", ())
    if needs and not any(given.get(name) for name in needs):
        raise ConfigError(f"{tree['name']} needs {' or '.join(f'--{name}' for name in needs)}")
    with explained():
        return RunSettings(**{name: value for name, value in tree.items() if name != "needs"})


def settings_with(recipe: str | Path | RunSettings, values: Mapping[str, Any]) -> RunSettings:
    """Build the settings of a recipe with some values changed, given as Python values.

    Args:
        recipe: as of `read_recipe`, or settings.
        values: {"model.width": 128, ...}: the names of the options, without the dashes.

    Raises:
        ConfigError: unknown recipe or name, wrong type, or an impossible combination.
    """
    if isinstance(recipe, RunSettings):
        tree = without_consequences(recipe.model_dump())
    else:
        tree = read_recipe(str(recipe))
    changes: dict[str, Any] = {}
    for name, value in values.items():
        *sections, last = name.split(".")
        inner = changes
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[last] = value
    return settings_from(merged_settings(tree, changes))


def load_settings(recipe: str | Path, overrides: Sequence[str] = ()) -> RunSettings:
    """Build the settings of a recipe with command-line overrides (`--section.name value`)."""
    parser = CommandParser()
    add_settings(parser)
    return read_settings(parser.parse_args([str(recipe), *overrides]))
