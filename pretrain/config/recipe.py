"""Builds `RunSettings` from a recipe and the command line.

A recipe is a TOML file, which may extend another; `--section.name value` on the command line
overrides it. The options and their help come from the fields in settings.py.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

from pydantic import ValidationError
from pydantic_settings import CliSettingsSource

from data_prep.files.quoting import plain
from pretrain.config.errors import ConfigError, nearest
from pretrain.config.recipe_files import (
    ARMS,
    TABLES,
    list_of_recipes,
    merged_settings,
    read_recipe,
    recipe_files,
    sweep_file,
    without_usual_feedforward,
)
from pretrain.config.settings import RunSettings, explain, sections, setting_fields
from pretrain.config.settings_help import describe_values, page


class ShowHelp(argparse.Action):
    """Prints the help of a command, with the values of the recipe that is named before it."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        """Print it and exit."""
        recipe = vars(namespace).get("recipe")
        if isinstance(recipe, list):  # of a command that takes several
            recipe = recipe[0] if len(recipe) == 1 and sweep_file(recipe[0]) is None else None
        if isinstance(parser, CommandParser) and parser.has_settings:
            settings = settings_from({} if recipe is None else read_recipe(recipe))
            describe_values(parser, settings)
            print(page(parser, recipe), end="")
        else:
            parser.print_help()
        parser.exit()


# Names that other programs have -> ours, in pre-training and in fine-tuning.
HABITS = {
    "lr": ("--learning_rate.peak", "--learning-rates"),
    "learning-rate": ("--learning_rate.peak", "--learning-rates"),
    "warmup-steps": ("--learning_rate.warmup_ratio", "--warmup-ratio"),
    "batch-size": ("--batch.global_sequences", "--batch"),
    "gradient-accumulation-steps": ("--batch.global_sequences", "--batch.micro_sequences"),
    "max-steps": ("--steps", "--epochs"),
    "epochs": ("--steps", "--hours"),
    "output-dir": ("--run-folder", "--to"),
    "max-seq-length": ("--data.sequence_length", "--sequence-length"),
    "fp16": ("--engine.ds_config", "--precision"),
    "bf16": ("--engine.ds_config", "--precision"),
    "zero-stage": ("--engine.ds_config",),
    "max-grad-norm": ("--optimizer.max_gradient_norm", "--max-gradient-norm"),
    "model-name-or-path": ("--initial_weights",),
    "seed": ("--seeds",),
}


class CommandParser(argparse.ArgumentParser):
    """An argument parser that raises `ConfigError` instead of exiting.

    The error for an unknown option names the one that was probably meant.
    """

    def __init__(self, **keywords: Any) -> None:
        """Build it without options; `keywords` are those of `argparse.ArgumentParser`."""
        super().__init__(**keywords, add_help=False)
        self.has_settings = False  # of a run: see `add_settings`
        self.add_argument(
            *("-h", "--help"),
            action=ShowHelp,
            nargs=0,
            dest=argparse.SUPPRESS,
            default=argparse.SUPPRESS,
            help="show this page and exit",
        )

    def error(self, message: str) -> NoReturn:
        """Raise what argparse would print."""
        unknown = message.partition("unrecognized arguments: ")[2].split()
        if message.endswith(" required: RECIPE"):
            print(f"{self.format_usage()}\n{list_of_recipes()}\n", file=sys.stderr)
            raise ConfigError("name a recipe")
        if not unknown:
            raise ConfigError(message)
        if unknown[0] in recipe_files():
            raise ConfigError(
                f"{unknown[0]} is a second recipe, and this command takes one; tupelo sweep takes "
                "several"
            )
        if not unknown[0].startswith("-"):
            raise ConfigError(
                f"{unknown[0]} belongs to no option: most take one value; separate several "
                "with commas and no spaces, such as 100,200"
            )
        name = unknown[0].partition("=")[0]
        raise ConfigError(f"there is no {name}{self._instead_of(name)}")

    def _instead_of(self, name: str) -> str:
        word = name.lstrip("-").lower().replace("_", "-")
        options = [option for option in self._option_string_actions if option.startswith("--")]
        found = [
            option
            for option in options
            if option in HABITS.get(word, ())
            or ("." in option and option.rpartition(".")[2].replace("_", "-") == word)
        ]
        return f"; use {' or '.join(found)}" if found else nearest(name, options)


def add_settings(
    parser: CommandParser, *, recipe_nargs: Literal["?", "*"] | None = None
) -> CliSettingsSource[argparse.ArgumentParser]:
    """Add RECIPE, --corpus and one option for every setting; the result goes to `read_settings`.

    Args:
        parser: to which they are added.
        recipe_nargs: "?" where a command can do without a recipe, "*" where it takes several, or
            none.
    """
    parser.add_argument(
        "recipe",
        nargs=recipe_nargs,
        metavar="RECIPE",
        help="a name that tupelo recipes lists, a .toml file, or a run folder",
    )
    parser.add_argument(
        "--corpus", nargs="+", metavar="PATH", help="text files or folders: data.corpus"
    )
    source: CliSettingsSource[argparse.ArgumentParser] = CliSettingsSource(
        RunSettings,
        root_parser=parser,
        cli_parse_none_str="none",
        cli_hide_none_type=True,
        cli_avoid_json=True,
    )
    for section in sections():
        # The library reads a section as JSON too; what comes after --data is no JSON but a path.
        parser._option_string_actions.pop(f"--{section}", None)
    recipe = {None: "RECIPE", "?": "[RECIPE]", "*": "[RECIPE ...]"}[recipe_nargs]
    parser.usage = f"{parser.prog} {recipe} [OPTION ...] [--section.setting VALUE ...]"
    parser.has_settings = True
    return source


def read_settings(
    arguments: argparse.Namespace, source: CliSettingsSource[argparse.ArgumentParser]
) -> RunSettings:
    """Build the settings: the recipe, overridden by the command line.

    Raises:
        ConfigError: unknown recipe or name, wrong type, or an impossible combination.
    """
    tree = read_recipe(arguments.recipe)
    _refuse_unknown(tree, arguments.recipe)
    if arguments.corpus:
        tree = merged_settings(tree, {"data": {"corpus": tuple(arguments.corpus)}})
    preset = vars(arguments).get("model.preset")
    if preset not in (None, "none"):  # as written, which names no shape to replace the recipe's
        tree = merged_settings(tree, {"model": {"preset": preset}})
    return settings_from(tree, _cli_settings_source=source(parsed_args=arguments))


def _refuse_unknown(tree: Mapping[str, Any], recipe: str) -> None:
    """Refuse, with the file, a table or setting that a recipe does not have.

    Raises:
        ConfigError: it may be that of a sweep whose arms are missing or misspelt.
    """
    known = {*RunSettings.model_fields, *setting_fields(RunSettings)}
    for table, content in tree.items():
        if table in TABLES:
            raise ConfigError(f"{recipe}: [{table}] is of a sweep, which needs [{ARMS}] too")
        is_section = table in RunSettings.model_fields and isinstance(content, dict)
        for name in [f"{table}.{inner}" for inner in content] if is_section else [table]:
            if name not in known:
                near = nearest(name, [*known, *TABLES])
                raise ConfigError(f"{recipe}: there is no setting {plain(name)}{near}")


def settings_from(tree: dict[str, Any], **sources: Any) -> RunSettings:
    """Build the settings from those of a recipe and other sources.

    Raises:
        ConfigError: a name is unknown, a type is wrong, or they do not go together.
    """
    try:
        return RunSettings(**sources, **tree)
    except ValidationError as error:
        raise ConfigError(explain(error)) from None


def settings_with(recipe: str | Path | RunSettings, values: Mapping[str, Any]) -> RunSettings:
    """Build the settings of a recipe with some values changed, given as Python values.

    Args:
        recipe: as of `read_recipe`, or settings.
        values: {"model.width": 128, ...}: the names of the options, without the dashes.

    Raises:
        ConfigError: unknown recipe or name, wrong type, or an impossible combination.
    """
    if isinstance(recipe, RunSettings):
        tree = without_usual_feedforward(recipe.model_dump())
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
    parser = CommandParser(allow_abbrev=False)
    source = add_settings(parser)
    return read_settings(parser.parse_args([str(recipe), *overrides]), source)
