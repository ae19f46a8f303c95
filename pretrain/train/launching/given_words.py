"""The command line of a child process, from what was given to this one."""

import argparse
from collections.abc import Collection

from pretrain.config.settings import RunSettings, flat


def given_words(arguments: argparse.Namespace, *, without: Collection[str] = ()) -> list[str]:
    """Return the words that the parser of `add_settings` reads as these arguments.

    Args:
        arguments: of that parser.
        without: destinations of the options and positionals to leave out.
    """
    words: list[str] = []
    for action in arguments.parser._actions:
        value = getattr(arguments, action.dest, action.default)
        if action.dest in without or value in (None, action.default):
            continue
        values = [str(part) for part in (value if isinstance(value, list) else [value])]
        option = action.option_strings[-1] if action.option_strings else ""
        if not action.option_strings:
            words = [*values, *words]  # an option of several values would take a positional too
        elif action.nargs == 0:
            words.append(option)
        elif len(values) == 1 and values[0].startswith("-"):
            words.append(f"{option}={values[0]}")
        else:
            words += [option, *values]
    return words


def setting_words(arguments: argparse.Namespace, *, without: Collection[str] = ()) -> list[str]:
    """Return those that every command with the settings of a run reads, RECIPE among them."""
    settings = {"recipe", "corpus", "trust_remote_code", *flat(RunSettings().model_dump())}
    return given_words(arguments, without={*vars(arguments)} - settings | {*without})
