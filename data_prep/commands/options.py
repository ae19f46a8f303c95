"""Options that several commands have, and settings of a build."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from data_prep.command_line import explained, given_settings
from data_prep.settings import BuildSettings, TextSettings

# As in the recipe of a run, of which a build has a part.
FIELDS = {f"data.{name}": field for name, field in TextSettings.model_fields.items()}
FIELDS["model.vocabulary_size"] = BuildSettings.model_fields["vocabulary_size"]


def at_least_1(text: str) -> int:
    """Return a positive whole number."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: not a whole number of at least 1")
    return int(text)


OPTIONS: dict[str, dict[str, Any]] = {
    "folder": {"type": Path, "metavar": "FOLDER", "help": "a shard folder"},
    "--to": {"type": Path, "required": True, "metavar": "FOLDER", "help": "the new folder"},
    "--workers": {"type": at_least_1, "metavar": "N", "help": "processes; default: one per CPU"},
}


def add_options(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add some of `OPTIONS`."""
    for name in names:
        parser.add_argument(name, **OPTIONS[name])


def read_settings(arguments: argparse.Namespace, others: Mapping[str, Any]) -> BuildSettings:
    """Return the settings of a command line, checked, and the defaults of those not given.

    Raises:
        ConfigError: a value cannot be.
    """
    given = given_settings(arguments, FIELDS)
    with explained(known=FIELDS):
        return BuildSettings(**{**given.get("data", {}), **given.get("model", {}), **others})
