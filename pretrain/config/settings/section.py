"""What all groups of settings share."""

from pydantic import BaseModel, ConfigDict


def is_changed(settings: BaseModel, name: str) -> bool:
    """Return whether a setting is not its default."""
    return bool(settings.model_dump()[name] != type(settings).model_fields[name].default)


class Section(BaseModel):
    """A group of settings: immutable, without unknown names, with checked defaults."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False
    )
