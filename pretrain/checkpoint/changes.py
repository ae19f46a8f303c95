"""Settings that differ from those of the run that is resumed, and which of them are refused.

A run may continue for more steps than it was started for. The schedules of the new length apply
from here on: it is the run that would have been planned with this length, except for the steps that
are taken. Weights, optimizer state and the order of the samples continue. Imports no torch: a
resume with other settings is refused before shards are built for them.
"""

from pathlib import Path
from typing import Any

from pretrain.config.errors import ConfigError
from pretrain.config.run_files import settings_of
from pretrain.config.settings import OF_TEXT, RunSettings, flat, stored_settings
from pretrain.config.settings.transformers_config import SPECIAL_IDS

# Settings that change no number of the run. Shards are compared by their content.
FREE = (
    *("checkpoint.", "trouble.", "data.shards"),
    *("data.language", "data.strip_accents"),  # of the text
    *("loggers", "ds_config.timers."),
    # Of a model of transformers, those of the tokenizer.
    *(f"model.transformers.{name}" for name in (*SPECIAL_IDS, "max_position_embeddings")),
    "ds_config.zero_optimization.reduce_bucket_size",  # which sums are exchanged together
)
# How a run is executed, with the DeepSpeed JSON and the number of ranks.
# Of the optimizers, those that keep the same state; a checkpoint of another one is refused.
ELASTIC = ("engine.", "batch.micro_sequences", "optimizer.kind", "ds_config.", "world_size")

Changes = dict[str, tuple[Any, Any]]  # by setting: value before, value now


def compared(folder: Path, settings: RunSettings, *, lengthen: bool) -> tuple[bool, Changes]:
    """Return whether a run becomes longer, and all settings that differ.

    Raises:
        ConfigError: the run becomes longer without `lengthen`, or run.json is damaged.
    """
    stored = stored_settings(settings_of(folder))
    now = flat(settings.model_dump(mode="json"))
    if settings.data.shards is not None:  # which are compared by their content
        stored |= {f"data.{name}": now[f"data.{name}"] for name in OF_TEXT}
    # In a run of given hours, `steps` is a unit.
    has_steps = stored["hours"] is None and settings.hours is None
    longer = has_steps and settings.steps > stored["steps"]
    if longer and not lengthen:
        raise ConfigError(
            f"{folder} was planned for {stored['steps']:,} steps; to continue it to "
            f"{settings.steps:,}, at the learning rate that a run of so many steps has here, give "
            "--lengthen"
        )
    return longer, changed(stored, now)


def refuse_changes(folder: Path, changes: Changes, *, elastic: bool, longer: bool) -> None:
    """Refuse changes with which a run is not the same run.

    With `elastic` the execution may differ from before, and of a `longer` run its steps.

    Raises:
        ConfigError: names them.
    """
    bound = {
        name: change
        for name, change in changes.items()
        if not (longer and name == "steps") and not name.startswith(FREE)
    }
    needs_elastic = {name for name in bound if name.startswith(ELASTIC)}
    refused = bound.keys() - needs_elastic if elastic else bound.keys()
    if not refused:
        return
    described = ", ".join(f"{n} (was {bound[n][0]}, is {bound[n][1]})" for n in sorted(refused))
    hint = "; give these as they were, resume it by its folder alone, or start a new run"
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
