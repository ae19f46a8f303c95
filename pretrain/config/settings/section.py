"""What all groups of settings share."""

from typing import Any, TypeGuard

from pydantic import BaseModel, ConfigDict


def is_section(kind: Any) -> TypeGuard[type[BaseModel]]:
    """Return whether the type of a field is a group of settings."""
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def is_changed(settings: BaseModel, name: str) -> bool:
    """Return whether a setting is not its default."""
    return bool(settings.model_dump()[name] != type(settings).model_fields[name].default)


class Section(BaseModel):
    """A group of settings: immutable, without unknown names, with checked defaults."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False
    )
