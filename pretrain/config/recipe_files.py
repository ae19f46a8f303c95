"""The files of recipes and sweeps: which there are, and how they are read."""

import os
import shutil
import textwrap
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from data_prep.files.program import shell_command
from data_prep.files.quoting import plain, quoted
from data_prep.removed import without_removed
from pretrain.config.errors import ConfigError, nearest
from pretrain.config.run_files import RUN_FILE, hint_at_runs, settings_of
from pretrain.config.settings import OF_TEXT, ModelSettings
from pretrain.config.settings.transformers_config import FIELDS, FREE

RECIPES = Path(__file__).parents[1] / "recipes"
FOLDERS = ("yours", "cpu", "cpu_positions", "base", "large")  # in the order of lists
ARMS = "arms"  # of a sweep, and of no recipe
TABLES = ("seeds", "budget", "settings", ARMS, "tune")  # of a sweep

# What a setting takes the place of, unless that is given beside it or after it.
OF_ENCODERS = {
    "model": ModelSettings.model_fields.keys() - {*FIELDS, "folder", "transformers"},
    "optimizer": {"position_rate", "relative_rate"},
}
REPLACED: dict[tuple[str, str], Mapping[str, Collection[str]]] = {
    ("data", "shards"): {"data": OF_TEXT},
    ("model", "transformers"): {**OF_ENCODERS, "model": {*OF_ENCODERS["model"], "folder"}},
    ("model", "folder"): {**OF_ENCODERS, "model": ModelSettings.model_fields.keys() - FREE},
}


def read_recipe(recipe: str) -> dict[str, Any]:
    """Read a recipe by name or path, or the settings of an earlier run by its folder.

    `extends = "other"` in a recipe starts from other.toml beside it, or from one of ours.

    Raises:
        ConfigError: there is no such recipe, or it is not valid TOML.
    """
    path = Path(recipe)
    if os.path.isfile(path / RUN_FILE):  # unlike pathlib, False for a name that is too long
        tree = settings_of(path)
        tree.pop("restarts_after", None)  # over, or refused where the run is resumed
        return without_consequences(without_removed(tree))
    files = recipe_files()
    if path.suffix == ".toml" and os.path.isfile(path):
        return without_removed(read_toml(path, files))
    if recipe in files:
        return read_toml(files[recipe], files)
    if sweep_file(recipe) is not None:
        raise _is_a_sweep(recipe)
    lists = f"{shell_command('recipes')} lists the recipes"
    if os.path.isdir(recipe):
        hint = hint_at_runs(path) or f"; {lists}"
        raise ConfigError(f"{recipe} is not a run folder: it has no {RUN_FILE}{hint}")
    runs = [str(file.parent) for file in Path("runs").glob(f"*/{RUN_FILE}")]
    meant = nearest(recipe, [*files, *sweep_files(), *runs])
    if f"runs/{recipe}" in runs:
        meant = f"; did you mean runs/{recipe}?"
    is_place = path.suffix == ".toml" or len(path.parts) > 1
    what = "file or run folder" if is_place else "recipe"
    raise ConfigError(f"there is no {what} {quoted(recipe)}{meant}; {lists}")


def without_consequences(tree: dict[str, Any]) -> dict[str, Any]:
    """Return complete settings without those that follow from others.

    These are the text of shards that are named, and a feed-forward width of four widths: it follows
    another width too, as it does where a recipe gives the width alone.
    """
    model, data = tree.get("model"), tree.get("data")
    if isinstance(data, dict) and data.get("shards") is not None:
        data = {name: value for name, value in data.items() if name not in OF_TEXT}
        tree = {**tree, "data": {**data, "corpus": ()}}
    if not isinstance(model, dict) or not isinstance(model.get("width"), int):
        return tree
    if model.get("feedforward_width") != 4 * model["width"]:
        return tree
    kept = {name: value for name, value in model.items() if name != "feedforward_width"}
    return {**tree, "model": kept}


def recipe_files() -> dict[str, Path]:
    """Return the files of our recipes by name, those of one folder together."""
    files = [file for folder in FOLDERS for file in sorted((RECIPES / folder).glob("*.toml"))]
    return {file.stem: file for file in files}


def sweep_files() -> dict[str, Path]:
    """Return the files of our sweeps by name."""
    return {file.stem: file for file in sorted((RECIPES / "sweeps").glob("*.toml"))}


def sweep_file(name: str) -> Path | None:
    """Return the file of a sweep, given its name or path; None: it is none.

    Raises:
        ConfigError: it is not valid TOML.
    """
    path = Path(name)
    if path.suffix == ".toml" and os.path.isfile(path):
        return path if ARMS in toml_in(path) else None
    return sweep_files().get(name)


def first_comment(file: Path) -> str:
    """Return the comment in the first line of a TOML file; empty: there is none."""
    first = file.read_text(encoding="utf-8").partition("\n")[0]
    return first.removeprefix("#").strip() if first.startswith("#") else ""


def list_of_recipes() -> str:
    """Return names and summaries as wide as the terminal, each recipe below what it extends."""
    summaries = {name: first_comment(file) for name, file in recipe_files().items()}
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


def read_toml(path: Path, ours: dict[str, Path], children: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Read a TOML file and, under it, the one that it `extends`.

    `ours` are files by the name under which it may extend them; one beside it comes first.
    `children` are the files that extend this one. The default of `name` is the stem of the file.

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
    parent = str(parent)
    parent_path = path.parent / f"{parent}.toml"
    if not os.path.isfile(parent_path):
        if parent not in ours:
            raise ConfigError(
                f"{path} extends {parent!r}, but there is no {parent_path}, and none of ours has "
                f"this name{nearest(parent, list(ours))}"
            )
        parent_path = ours[parent]
    if parent_path in (*children, path):
        raise ConfigError(f"{path} extends {parent!r}, which extends it in turn; remove one")
    return merged_settings(read_toml(parent_path, ours, (*children, path)), tree)


def _is_a_sweep(name: str) -> ConfigError:
    command = shell_command("sweep", name)
    return ConfigError(f"{name} is a sweep of several arms, not a recipe; train it with: {command}")


def toml_in(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file.

    Raises:
        ConfigError: it cannot be read, or is not valid TOML.
    """
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except RecursionError:
        raise ConfigError(f"{path} is not valid TOML: nested too deeply") from None
    except ValueError as error:  # TOML, UTF-8, or a number of thousands of digits
        raise ConfigError(
            f"{path} is not valid TOML: {plain(str(error))}"
            + ("; text needs quotes" if "Invalid value" in str(error) else "")
        ) from None


def merged_settings(base: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    """Return the tables of a recipe with others laid over them."""
    merged = dict(base)
    if "steps" in extra:  # in place of hours
        merged.pop("hours", None)
    for (section, new), others in REPLACED.items():
        given = extra.get(section)
        if isinstance(given, dict) and given.get(new) is not None:
            has_tables = given.get("positions", "own") != "own"  # attached: their rates stay
            for table, names in others.items():
                kept = has_tables and table == "optimizer"
                if isinstance(before := merged.get(table), dict) and not kept:
                    merged[table] = {n: value for n, value in before.items() if n not in names}
    for name, value in extra.items():
        both_tables = isinstance(value, dict) and isinstance(merged.get(name), dict)
        merged[name] = merged_settings(merged[name], value) if both_tables else value
    return merged
