"""The command line of all packages: commands, their options, and settings.

A setting is spelled as in a recipe, `--data.language en`; several values are separated by commas.
What is no setting is spelled with dashes, `--run-folder FOLDER`.
"""

import argparse
import contextlib
import importlib
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from data_prep.files.errors import ConfigError, UserError
from data_prep.files.program import shell_command
from data_prep.files.quoting import plain, quoted
from data_prep.removed import REMOVED, nearest

HELP = ("-h", "--help")
SHORT = 200  # characters of a value


class Command(NamedTuple):
    """A command: where it is, and what it does."""

    module: str  # with add_arguments(parser) and main(arguments); imported when it is used
    summary: str  # what it does, in a line


def run_command(
    commands: Mapping[str, Command],
    words: Sequence[str],
    *,
    group: Sequence[str] = (),
    others: Iterable[str] = (),
) -> int | None:
    """Run one command, or list all of them if there are no words or --help.

    `group` are the words of `tupelo` before the command, such as "finetune"; `others` are words
    that may have been meant.

    Returns:
        The exit status, where the command has one of its own.

    Raises:
        ConfigError: there is no such command, or what the command itself raises.
    """
    if not words or words[0] in HELP:
        print(overview(commands, group=group))
        return None
    if words[0] not in commands:
        known = [*commands, *others]
        raise ConfigError(
            f"there is no command {words[0]!r}{nearest(words[0], known)}; one of {', '.join(known)}"
        )
    module = importlib.import_module(commands[words[0]].module)
    parser = CommandParser(prog=shell_command(*group, words[0]), description=module.__doc__)
    module.add_arguments(parser)
    # Help last: it shows the values of the recipe that is named.
    status: int | None = module.main(parser.parse_args(sorted(words[1:], key=HELP.__contains__)))
    return status


def overview(commands: Mapping[str, Command], *, group: Sequence[str] = ()) -> str:
    """Return the usage and a line for every command."""
    width = max(map(len, commands))
    lines = [f"  {name:{width}}  {command.summary}" for name, command in commands.items()]
    usage = f"usage: {shell_command(*group)} COMMAND ...   (COMMAND --help explains its options)"
    return "\n".join((usage, "", *lines))


class Paragraphs(argparse.RawDescriptionHelpFormatter):
    """Fits paragraphs to the width of the terminal; indented lines, examples, stay as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(
            textwrap.indent(block, indent)
            if "\n " in f"\n{block}"
            else textwrap.fill(block, width, initial_indent=indent, subsequent_indent=indent)
            for block in text.strip("\n").split("\n\n")
        )


class ShowHelp(argparse.Action):
    """Prints the page of a command."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, *_: object) -> None:
        """Print it and exit."""
        print(parser.page(namespace), end="")
        parser.exit()


class CommandParser(argparse.ArgumentParser):
    """An argument parser that raises `ConfigError` instead of exiting.

    The error for an unknown option names the one that was probably meant.
    """

    def __init__(self, **keywords: Any) -> None:
        """Build it without options; `keywords` are those of `argparse.ArgumentParser`."""
        usual: dict[str, Any] = {"allow_abbrev": False, "formatter_class": Paragraphs}
        super().__init__(**(usual | keywords), add_help=False)
        self.fields: Mapping[str, FieldInfo] = {}
        self.add_argument(
            *HELP,
            action=ShowHelp,
            nargs=0,
            dest=argparse.SUPPRESS,
            default=argparse.SUPPRESS,
            help="show this page and exit",
        )

    def add_settings(
        self,
        fields: Mapping[str, FieldInfo],
        sections: Mapping[str, str],
        values: Callable[[argparse.Namespace], tuple[str, Mapping[str, Any]]],
    ) -> None:
        """Add an option for each setting.

        Args:
            fields: by name, such as "model.norm".
            sections: what the settings with each beginning of names are about.
            values: returns the words for, and the values of, the settings that --help shows.
        """
        self.fields, self._values = fields, values
        groups = {
            section: self.add_argument_group(section or "run", text)
            for section, text in sections.items()
        }
        for name, field in fields.items():
            add_setting(groups[name.rpartition(".")[0]], name, field)

    def page(self, arguments: argparse.Namespace) -> str:
        """Return usage, description, the options of the command, and the settings by section."""
        if self.fields:
            whose, values = self._values(arguments)
            self.description = f"{str(self.description).strip()}\n\nThe defaults shown are {whose}."
            for action in self._actions:
                if action.dest in self.fields:
                    action.help = _explained(self.fields[action.dest], values[action.dest])
        return self.format_help()

    def error(self, message: str) -> NoReturn:
        """Raise what argparse would print."""
        unknown = message.partition("unrecognized arguments: ")[2].split()
        if not unknown:
            raise ConfigError(message)
        if not unknown[0].startswith("-"):
            raise ConfigError(
                f"{unknown[0]} belongs to no option; leave it out, or separate the values of one "
                "with commas and no spaces, such as 100,200; several recipes: tupelo sweep"
            )
        name = unknown[0].partition("=")[0]
        options = [option for option in self._option_string_actions if option.startswith("--")]
        # Of another spelling, or the last part of a name.
        bare = {one: one.lstrip("-").replace("-", "_") for one in options}
        word = name.lstrip("-").lower().replace("-", "_")
        spelled = [one for one in options if word in (bare[one], bare[one].rpartition(".")[2])]
        instead = f"; use {' or '.join(spelled)}" if spelled else nearest(name, options)
        raise ConfigError(f"there is no {name}{instead}")


def add_setting(options: argparse._ActionsContainer, name: str, field: FieldInfo) -> None:
    """Add an option for a setting; where it is not given, it is no argument."""
    options.add_argument(
        f"--{name}",
        dest=name,
        default=argparse.SUPPRESS,
        metavar=type_in_words(field.annotation),
        help=_explained(field, field.default),
    )


def given_settings(
    arguments: argparse.Namespace, fields: Mapping[str, FieldInfo]
) -> dict[str, Any]:
    """Return the settings of a command line by section, as pydantic reads them."""
    tree: dict[str, Any] = {}
    for name, value in vars(arguments).items():
        if name in fields and value is not None:
            section, _, last = name.rpartition(".")
            inner = tree.setdefault(section, {}) if section else tree
            inner[last] = _parsed(value, fields[name].annotation)
    return tree


def _parsed(text: Any, kind: Any) -> Any:
    """Return None for the word none where a value can be, and the parts of several values."""
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    if text == "none" and NoneType in kinds:
        return None
    if isinstance(text, str) and int in kinds and "e" in text.lower():  # 1e6
        with contextlib.suppress(ValueError):
            number = float(text)
            return int(number) if number.is_integer() else text
    if isinstance(text, str) and any(get_origin(one) is tuple for one in kinds):
        return [] if text == "none" else text.split(",")
    return text


def setting_fields(section: type[BaseModel], prefix: str = "") -> dict[str, FieldInfo]:
    """Return the fields of all settings, by name such as "model.norm"."""
    fields: dict[str, FieldInfo] = {}
    for name, field in section.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            fields |= setting_fields(kind, f"{prefix}{name}.")
        else:
            fields[prefix + name] = field
    return fields


def explain(error: ValidationError, known: Sequence[str]) -> str:
    """Return the first error of pydantic as one line with setting and value.

    Of the `known` names, one that ends with the place of the error is shown in full.
    """
    first = error.errors()[0]
    # Left out: the alternative of a type, such as constrained-int, that the value was read as.
    of_types = ("constrained-", "literal[")
    place = [str(part) for part in first["loc"] if not str(part).startswith(of_types)]
    where = plain(".".join(place))
    if first["type"] == "extra_forbidden":
        return f"there is no setting {where}{nearest(where, known)}"
    message = first["msg"].removeprefix("Value error, ").partition(", unable to ")[0]
    if first["type"] == "value_error":
        return message
    where = next((name for name in known if name.endswith(f".{where}")), where)
    found = "" if first["type"] == "missing" else f"={quoted(first['input'])}"
    if removed := REMOVED.get(where + found):
        return f"{where}{found} is no longer a value; {removed.instead}"
    return f"{where}{found}: {message[0].lower()}{message[1:]}"


@contextlib.contextmanager
def explained(
    lead: str = "", known: Iterable[str] = (), end: str = "", kind: type[UserError] = ConfigError
) -> Iterator[None]:
    """Raise the first error of pydantic, as `explain` puts it, as an error of this kind."""
    try:
        yield
    except ValidationError as error:
        raise kind(f"{lead}{explain(error, list(known))}{end}") from None


def type_in_words(kind: Any) -> str:
    """Return what to write for a value of this type."""
    origin, parts = get_origin(kind), [part for part in get_args(kind) if part is not NoneType]
    if origin is Literal:
        return "|".join(map(str, parts))
    if origin is Annotated:
        return type_in_words(parts[0])
    if origin in (Union, UnionType):
        return "|".join(dict.fromkeys(map(type_in_words, parts)))
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
