"""Builds `RunSettings` from a recipe and the command line.

A recipe is a TOML file, which may extend another; `--section.name value` on the command line
overrides it. The options and their help come from the fields in settings.py.
"""

import argparse
import os
import re
import shutil
import textwrap
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

from pydantic import ValidationError
from pydantic_settings import CliSettingsSource

from data_prep.files.program import shell_command
from data_prep.files.quoting import plain, quoted
from pretrain.config.errors import ConfigError, nearest
from pretrain.config.habits import HABITS
from pretrain.config.json_objects import read_json_object
from pretrain.config.settings import RunSettings, explain, sections, setting_fields
from pretrain.config.settings_help import describe_values, page

RECIPES = Path(__file__).parents[1] / "recipes"
SIZES = ("cpu", "base", "large")  # their folders, in the order of lists
SWEEPS = RECIPES / "sweeps"
ARMS = "arms"  # of a sweep, and of no recipe
TABLES = ("seeds", "budget", "settings", ARMS, "tune")  # of a sweep

OPTION = re.compile(r"--[\w.-]*\w")
PARENT = re.compile(r"[\w-][\w. -]{0,99}")
MOST_PARENTS = 20

# Set by a preset, unless given beside it or after it.
SHAPE = ("num_layers", "width", "num_heads", "feedforward_width")


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


class CommandParser(argparse.ArgumentParser):
    """An argument parser that raises `ConfigError` instead of exiting.

    The error for an unknown option names the one that was probably meant.
    """

    def __init__(self, *, habits: Mapping[str, str] | None = None, **keywords: Any) -> None:
        """Build it without options.

        Args:
            habits: what to use instead of names that other programs have: these in small letters,
                with "-" for "_" and none in front; such as {"lr": "--learning_rate.peak"}.
            keywords: of `argparse.ArgumentParser`.
        """
        super().__init__(**keywords, add_help=False)
        self.habits = habits or {}
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
            raise ConfigError(f"name a recipe:\n\n{self.format_usage()}\n{list_of_recipes()}")
        if not unknown:
            raise ConfigError(message)
        if unknown[0] in recipe_files():
            raise ConfigError(
                f"{unknown[0]} is a second recipe, and this command takes one; tupelo sweep "
                "and tupelo plan take several"
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
        habit = self.habits.get(word)
        # Another command may lack what the habit leads to.
        if habit is not None and set(OPTION.findall(habit)) <= set(options):
            return f"; use {habit}"
        in_sections = [
            option
            for option in options
            if "." in option and option.rpartition(".")[2].replace("_", "-") == word
        ]
        return f"; use {' or '.join(in_sections)}" if in_sections else nearest(name, options)


def add_settings(
    parser: CommandParser, *, recipe_nargs: Literal["?", "*", "+"] | None = None
) -> CliSettingsSource[argparse.ArgumentParser]:
    """Add RECIPE, --corpus and one option for every setting; the result goes to `read_settings`.

    Args:
        parser: to which they are added.
        recipe_nargs: "?" where a command can do without a recipe, "*" where it takes several, or
            none; "+": one or several.
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
    recipe = {None: "RECIPE", "?": "[RECIPE]", "*": "[RECIPE ...]", "+": "RECIPE ..."}[recipe_nargs]
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
        tree = _merge(tree, {"data": {"corpus": tuple(arguments.corpus)}})
    preset = vars(arguments).get("model.preset")
    if preset is not None:
        tree = _merge(tree, {"model": {"preset": preset}})
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
    tree = recipe.model_dump() if isinstance(recipe, RunSettings) else read_recipe(str(recipe))
    changes: dict[str, Any] = {}
    for name, value in values.items():
        *sections, last = name.split(".")
        inner = changes
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[last] = value
    return settings_from(_merge(tree, changes))


def load_settings(recipe: str | Path, overrides: Sequence[str] = ()) -> RunSettings:
    """Build the settings of a recipe with command-line overrides (`--section.name value`)."""
    parser = CommandParser(allow_abbrev=False, habits=HABITS)
    source = add_settings(parser)
    return read_settings(parser.parse_args([str(recipe), *overrides]), source)


def read_recipe(recipe: str) -> dict[str, Any]:
    """Read a recipe by name or path, or the settings of an earlier run by its folder.

    `extends = "other"` in a recipe starts from another one in the same folder, or one of ours.

    Raises:
        ConfigError: there is no such recipe, or it is not valid TOML.
    """
    path = Path(recipe)
    if os.path.isfile(path / "run.json"):  # unlike pathlib, False for a name that is too long
        return read_json_object(path / "run.json")
    if path.suffix == ".toml" and os.path.isfile(path):
        return read_toml(path)
    files = recipe_files()
    if recipe in files:
        return read_toml(files[recipe])
    if sweep_file(recipe) is not None:
        raise _is_a_sweep(recipe)
    known = list(files)
    if path.suffix == ".toml":
        raise ConfigError(f"there is no file {quoted(recipe)}; recipes: {', '.join(known)}")
    raise ConfigError(
        f"there is no recipe {quoted(recipe)}{nearest(recipe, [*known, *sweep_files()])}; recipes: "
        f"{', '.join(known)}"
    )


def recipe_files() -> dict[str, Path]:
    """Return the files of our recipes by name, those of one size together."""
    files = [file for size in SIZES for file in sorted((RECIPES / size).glob("*.toml"))]
    return {file.stem: file for file in files}


def sweep_files() -> dict[str, Path]:
    """Return the files of our sweeps by name."""
    return {file.stem: file for file in sorted(SWEEPS.glob("*.toml"))}


def sweep_file(name: str) -> Path | None:
    """Return the file of a sweep, given its name or path; None: it is none.

    Raises:
        ConfigError: it is not valid TOML.
    """
    path = Path(name)
    if path.suffix == ".toml" and os.path.isfile(path):
        return path if ARMS in toml_in(path) else None
    return sweep_files().get(name)


def recipe_summaries() -> dict[str, str]:
    """Return the names of our recipes, each with its first line."""
    return {name: summary_of(name) for name in recipe_files()}


def summary_of(recipe: str) -> str:
    """Return the comment in the first line of a recipe; empty: a file without, or a run folder.

    Args:
        recipe: as of `read_recipe`, which has read it.
    """
    path = Path(recipe)
    if (path / "run.json").is_file():
        return ""
    known = path.suffix == ".toml" and path.is_file()
    return first_comment(path if known else recipe_files()[recipe])


def first_comment(file: Path) -> str:
    """Return the comment in the first line of a TOML file; empty: there is none."""
    first = file.read_text(encoding="utf-8").partition("\n")[0]
    return first.removeprefix("#").strip() if first.startswith("#") else ""


def list_of_recipes() -> str:
    """Return names and summaries as wide as the terminal, each recipe below what it extends."""
    summaries = recipe_summaries()
    parents = {name: toml_in(file).get("extends") for name, file in recipe_files().items()}

    def below(parent: str | None, depth: int) -> list[tuple[str, str]]:
        rows = []
        for name, summary in summaries.items():
            if parents[name] == parent:
                rows += [("  " * depth + name, summary), *below(name, depth + 1)]
        return rows

    rows = below(None, 0)
    indent = max(len(name) for name, _ in rows) + 2
    columns = shutil.get_terminal_size().columns
    return "\n".join(
        textwrap.fill(f"{name:{indent}}{summary}", columns, subsequent_indent=" " * indent)
        for name, summary in rows
    )


def read_toml(path: Path, children: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Read a TOML file and, under it, the recipe that it `extends`.

    Args:
        path: of the file; its stem is the default of `name`.
        children: files that extend this one.

    A recipe in the same folder comes before one of ours with that name.

    Raises:
        ConfigError: it is not valid TOML, or extends a missing file or itself.
    """
    tree = toml_in(path)
    if ARMS in tree:
        raise _is_a_sweep(str(path))
    tree.setdefault("name", path.stem)
    parent = tree.pop("extends", None)
    if parent is None:
        return tree
    if not isinstance(parent, str) or not PARENT.fullmatch(parent):
        raise ConfigError(
            f"{path} extends {quoted(parent)}, which is not the name of a recipe; give that of one "
            "in the same folder, without .toml, or one that tupelo recipes lists"
        )
    ours, parent_path = recipe_files(), path.parent / f"{parent}.toml"
    if not parent_path.is_file():
        if parent not in ours:
            raise ConfigError(
                f"{path} extends {parent!r}, but there is no {parent_path}, and no such recipe of "
                f"ours{nearest(parent, list(ours))}"
            )
        parent_path = ours[parent]
    if parent_path in (*children, path):
        raise ConfigError(f"{path} extends {parent!r}, which extends it in turn; remove one")
    if len(children) == MOST_PARENTS:
        raise ConfigError(
            f"{path} is the end of {MOST_PARENTS} recipes that extend each other; merge some"
        )
    return _merge(read_toml(parent_path, (*children, path)), tree)


def _is_a_sweep(name: str) -> ConfigError:
    command = shell_command("sweep", name)
    return ConfigError(f"{name} is a sweep of several arms, not a recipe; train it with: {command}")


def toml_in(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file.

    Raises:
        ConfigError: it cannot be read, or is not valid TOML.
    """
    try:
        tree = tomllib.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except RecursionError:
        raise ConfigError(f"{path} is not valid TOML: nested too deeply") from None
    except ValueError as error:  # TOML, UTF-8, or a number of thousands of digits
        raise ConfigError(f"{path} is not valid TOML: {plain(str(error))}") from None
    _refuse_huge_numbers(tree, path)
    return tree


def _refuse_huge_numbers(tree: dict[str, Any], path: Path) -> None:
    """Refuse integers of more than 64 bits, which Python reads although TOML has none."""
    values: list[Any] = [tree]
    for value in values:
        if isinstance(value, dict):
            values += value.values()
        elif isinstance(value, list):
            values += value
        elif isinstance(value, int) and value.bit_length() > 64:
            raise ConfigError(
                f"{path} is not valid TOML: a number of {value.bit_length():,} bits; at most 64"
            )


def _merge(base: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    if "preset" in extra:  # a new preset is a new shape
        merged = {name: value for name, value in base.items() if name not in SHAPE}
    for name, value in extra.items():
        both_tables = isinstance(value, dict) and isinstance(merged.get(name), dict)
        merged[name] = _merge(merged[name], value) if both_tables else value
    return merged
