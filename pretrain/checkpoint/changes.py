"""Settings that differ from those of the run that is resumed, and which of them are refused.

Imports no torch: a resume with other settings is refused before shards are built for them.
"""

import json
from pathlib import Path
from typing import Any

from pretrain.checkpoint.lengthening import How, longer_setting
from pretrain.config.errors import ConfigError
from pretrain.config.run_files import settings_of
from pretrain.config.settings import OF_TEXT, RunSettings, as_json, flat, stored_settings

# Settings that change no number of the run. Shards are compared by their content.
FREE = (
    *("checkpoint.", "trouble.", "data.loader_workers", "data.shards"),
    *("loggers", "ds_config.timers."),
    "ds_config.zero_optimization.reduce_bucket_size",  # which sums are exchanged together
)
# How a run is executed, with the DeepSpeed JSON and the number of ranks.
# Of the optimizers, those that keep the same state; a checkpoint of another one is refused.
ELASTIC = ("engine.", "batch.micro_sequences", "optimizer.kind", "ds_config.", "world_size")

Changes = dict[str, tuple[Any, Any]]  # by setting: value before, value now


def compared(
    folder: Path, settings: RunSettings, lengthen: How | None
) -> tuple[dict[str, Any], str | None, Changes]:
    """Return the settings of the run so far, the one that lengthens it, and all that differ.

    Raises:
        ConfigError: the run becomes longer and `lengthen` is None, or run.json is damaged.
    """
    stored = stored_settings(settings_of(folder))
    now = flat_settings(settings)
    if settings.data.shards is not None:  # which are compared by their content
        stored |= {f"data.{name}": now[f"data.{name}"] for name in OF_TEXT}
    longer = longer_setting(stored, now)
    if longer is not None and lengthen is None:
        raise ConfigError(
            f"{folder} was planned for {stored[longer]:,} {longer}; to continue it to "
            f"{now[longer]:,}, choose --lengthen stretch (the learning rate that a run of "
            f"{now[longer]:,} {longer} has here) or --lengthen restart (a new warm-up and decay "
            "over what is left)"
        )
    return stored, longer, changed(stored, now)


def flat_settings(settings: RunSettings) -> dict[str, Any]:
    """Return the settings by name, as run.json holds them."""
    return flat(json.loads(as_json(settings)))


def refuse_changes(folder: Path, changes: Changes, *, elastic: bool, longer: str | None) -> None:
    """Refuse changes with which a run is not the same run.

    Args:
        folder: of the run.
        changes: of settings, DeepSpeed JSON and number of ranks.
        elastic: whether the execution may differ from before.
        longer: the setting by which the run becomes longer.

    Raises:
        ConfigError: names them.
    """
    bound = {
        name: change
        for name, change in changes.items()
        if name != longer and not name.startswith(FREE)
    }
    needs_elastic = {name for name in bound if name.startswith(ELASTIC)}
    refused = bound.keys() - needs_elastic if elastic else bound.keys()
    if not refused:
        return
    described = ", ".join(f"{n} (was {bound[n][0]}, is {bound[n][1]})" for n in sorted(refused))
    hint = "; a resume is the same run: leave these out, or start a new one"
    if refused == needs_elastic:
        hint = "; with --elastic it is resumed, not bit for bit"
    raise ConfigError(f"cannot resume {folder} with other settings: {described}{hint}")


def changed(before: dict[str, Any], now: dict[str, Any]) -> Changes:
    """Return what differs, by name."""
    return {
        name: (before.get(name), now.get(name))
        for name in before | now
        if before.get(name) != now.get(name)
    }
