"""The page that --help prints for a command with the settings of a run.

Each setting is shown with its value in a recipe, and with a type in words.
"""

import argparse
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from pretrain.config.settings import RunSettings, flat, setting_fields

SHORT = 200  # characters of a value


def describe_values(parser: argparse.ArgumentParser, settings: RunSettings) -> None:
    """Give every option that is a setting its value in `settings` as the default, and a type."""
    fields, values = setting_fields(RunSettings), flat(settings.model_dump())
    for action in parser._actions:
        if action.dest in fields:
            field = fields[action.dest]
            action.metavar = type_in_words(field.annotation)
            action.choices = None
            action.help = _explained(field, values[action.dest])


def page(parser: argparse.ArgumentParser, recipe: str | None) -> str:
    """Return usage, description, the options of the command, and the settings by section.

    Args:
        parser: of the command, after `describe_values`.
        recipe: whose values are shown, if one was named.
    """
    fields = setting_fields(RunSettings)
    own = [action for action in parser._actions if action.dest not in fields]
    own.sort(key=lambda action: bool(action.option_strings))
    whose = "those of a recipe that sets nothing" if recipe is None else f"the values of {recipe}"
    formatter = parser._get_formatter()
    formatter.add_usage(parser.usage, parser._actions, parser._mutually_exclusive_groups)
    formatter.add_text(parser.description)
    formatter.start_section("options")
    formatter.add_arguments(own)
    formatter.end_section()
    formatter.add_text(f"The settings of the run; the defaults shown are {whose}.")
    for title, text, actions in _sections(parser, fields):
        formatter.start_section(title)
        formatter.add_text(text)
        formatter.add_arguments(actions)
        formatter.end_section()
    return formatter.format_help()


def type_in_words(kind: Any) -> str:
    """Return what to write for a value of this type."""
    origin, parts = get_origin(kind), [part for part in get_args(kind) if part is not type(None)]
    if origin is Literal:
        return "|".join(map(str, parts))
    if origin is Annotated:
        return type_in_words(parts[0])
    if origin in (Union, UnionType):
        return "|".join(map(type_in_words, parts))
    if origin is tuple:
        words = ["..." if part is Ellipsis else type_in_words(part) for part in parts]
        return ",".join(words)
    if kind is bool:
        return "true|false"
    return {int: "NUMBER", float: "NUMBER", Path: "PATH"}.get(kind, "TEXT")


def value_in_words(value: Any) -> str:
    """Return a value as the command line takes it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return ",".join(map(value_in_words, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _explained(field: FieldInfo, value: Any) -> str:
    text = str(field.description)
    if value is not None or "default" not in text:
        text += f" (default: {value_in_words(value)[:SHORT]})"
    return text.replace("%", "%%")


def _sections(
    parser: argparse.ArgumentParser, fields: dict[str, FieldInfo]
) -> list[tuple[str, str, list[argparse.Action]]]:
    """Return title, description and options of each section; first those of the run itself."""
    actions: dict[str, list[argparse.Action]] = {}
    for action in parser._actions:
        if action.dest in fields:
            actions.setdefault(action.dest.rpartition(".")[0], []).append(action)
    found = []
    for name, members in actions.items():
        kind = RunSettings.model_fields[name].annotation if name else RunSettings
        found.append((name or "run", str(kind.__doc__), members))
    return sorted(found, key=lambda section: section[0] != "run")
