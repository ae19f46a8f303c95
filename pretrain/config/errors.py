"""The errors that users see, and look-up by name with a suggestion for misspelt names."""

import difflib
from collections.abc import Mapping, Sequence
from typing import TypeVar

from data_prep.files.errors import UserError
from data_prep.files.quoting import quoted
from data_prep.removed import instead_of_removed

Entry = TypeVar("Entry")

LONGEST_COMPARED = 200  # difflib would take minutes for a long text


class ConfigError(UserError):
    """The user's settings ask for something that does not exist or cannot be combined."""


def lookup(table: Mapping[str, Entry], name: str, *, setting: str) -> Entry:
    """Return the entry of `name`.

    Raises:
        ConfigError: it is not in the table; with the nearest name.
    """
    if name not in table:
        raise ConfigError(
            f"{setting}={quoted(name)} does not exist{nearest(name, list(table))}; "
            f"one of {', '.join(table)}"
        )
    return table[name]


def nearest(name: str, known: Sequence[str]) -> str:
    """Return "; did you mean X?" for the most similar known name, or nothing.

    For a setting or command that is no more, what to do instead.
    """
    if instead := instead_of_removed(name.lstrip("-")):
        return f"; {instead}"
    found = difflib.get_close_matches(name[:LONGEST_COMPARED], known, n=1)
    return f"; did you mean {found[0]}?" if found else ""


class AnomalyError(UserError):
    """Training stopped at NaN, infinity, overflows or a loss spike."""
