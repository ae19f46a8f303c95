"""Settings as names and values: in messages, in run.json, in those of earlier versions."""

import json
from contextlib import AbstractContextManager
from typing import Any

from pydantic import BaseModel

from data_prep import command_line
from data_prep.removed import without_removed
from pretrain.config.settings.run import RunSettings


def explained(
    lead: str = "", settings: type[BaseModel] = RunSettings, **how: Any
) -> AbstractContextManager[None]:
    """Raise the first error of pydantic in these settings as one line; the rest as of data_prep."""
    return command_line.explained(lead, command_line.setting_fields(settings), **how)


def as_json(settings: RunSettings) -> str:
    """Return the settings as they are written to run.json."""
    return json.dumps(settings.model_dump(mode="json"), indent=1) + "\n"


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings as one level: {"model.norm": "pre", ...}."""
    values: dict[str, Any] = {}
    for name, value in tree.items():
        is_section = isinstance(value, dict)
        values |= flat(value, f"{prefix}{name}.") if is_section else {prefix + name: value}
    return values


def stored_settings(tree: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a run.json as one level, with the settings that it is older than.

    A run older than a setting was started with the behaviour that is its default today. A setting
    that is no more, and was not at its default, is one in which runs differ.
    """
    defaults = RunSettings().model_dump(mode="json")
    return flat(defaults) | flat(without_removed(tree, refuses=False))
