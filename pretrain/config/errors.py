"""The errors that users see, and look-up by name with a suggestion for misspelt names."""

from collections.abc import Mapping
from typing import TypeVar

from data_prep.files.errors import ConfigError as ConfigError
from data_prep.files.errors import UserError
from data_prep.files.quoting import quoted
from data_prep.removed import nearest as nearest

Entry = TypeVar("Entry")


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


class AnomalyError(UserError):
    """Training stopped at NaN, infinity, overflows or a loss spike."""
