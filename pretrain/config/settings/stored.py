"""Settings as names and values: in messages, in run.json, in those of earlier versions."""

import json
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from data_prep.files.quoting import plain, quoted
from data_prep.removed import without_removed
from pretrain.config.errors import nearest
from pretrain.config.settings.layer_drop import with_default_gamma
from pretrain.config.settings.run import RunSettings
from pretrain.config.settings.section import is_section


def setting_fields(section: type[BaseModel], prefix: str = "") -> dict[str, FieldInfo]:
    """Return the fields of all settings, by name such as "model.norm"."""
    fields: dict[str, FieldInfo] = {}
    for name, field in section.model_fields.items():
        kind = field.annotation
        if is_section(kind):
            fields |= setting_fields(kind, f"{prefix}{name}.")
        else:
            fields[prefix + name] = field
    return fields


def explain(error: ValidationError, settings: type[BaseModel] = RunSettings) -> str:
    """Return the first error of pydantic as one line with setting and value."""
    first = error.errors()[0]
    # Left out: the alternative of a type, such as constrained-int, that the value was read as.
    place = [str(part) for part in first["loc"] if not str(part).startswith("constrained-")]
    where = plain(".".join(place))
    if first["type"] == "extra_forbidden":
        return f"there is no setting {where}{nearest(where, list(setting_fields(settings)))}"
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error":
        return message
    return f"{where}={quoted(first['input'])}: {message[0].lower()}{message[1:]}"


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

    A run older than a setting was started with the behaviour that is its default today.
    """
    stored = flat(json.loads(as_json(RunSettings()))) | flat(without_removed(tree))
    if stored["batch.micro_sequences"] is None:  # as runs wrote before there was a choice
        stored["batch.micro_sequences"] = "auto"
    return with_default_gamma(stored, "layer_drop.")
