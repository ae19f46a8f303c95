"""Which settings must be equal when a run is resumed, and which may differ.

On as many ranks with the same settings a resumed run equals the uninterrupted one bit for bit. With
--elastic the number of ranks, the ZeRO stage and the execution may change: samples, their order,
learning rate and schedules stay the same, and losses are equal within rounding (dropout and, unless
layer_drop.draw_per=step, layer drop draw other numbers). More steps or hours lengthen the run.
"""

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

from data_prep.files.program import shell_command
from pretrain.checkpoint.folders import newest_sound_checkpoint, step_of
from pretrain.checkpoint.lengthening import (
    How,
    Lengthening,
    choice_missing,
    lengthened,
    longer_setting,
)
from pretrain.checkpoint.starting import RUN_FILE, finished
from pretrain.config.ds_config import micro_batches_per_step
from pretrain.config.errors import ConfigError
from pretrain.config.json_objects import read_json_lines, read_json_object
from pretrain.config.settings import RunSettings, as_json, flat

# Settings that change no number of the run. Shards are compared by their content.
FREE = (
    *("checkpoint.", "trouble.", "watchdog.", "data.loader_workers", "data.shards"),
    *("loggers", "log_project"),
)
# How a run is executed, with the DeepSpeed JSON and the number of ranks.
ELASTIC = ("engine.", "batch.micro_sequences", "ds_config.", "world_size")

FIX = "restore it from a copy"

Changes = dict[str, tuple[Any, Any]]  # by setting: value before, value now


class Resumption(NamedTuple):
    """The checkpoint from which a run resumes, and the settings changed since its last launch."""

    checkpoint: Path | None  # None: from the beginning
    changes: Changes
    lengthening: Lengthening | None = None

    def describe(self) -> str:
        """Return where the run resumes, and what has changed, in one line."""
        origin = "the beginning: it has no checkpoint yet"
        if self.checkpoint is not None:
            origin = f"step {step_of(self.checkpoint):,}"
        changed = ", ".join(
            f"{name} ({before} to {now})" for name, (before, now) in sorted(self.changes.items())
        )
        return f"resuming from {origin}" + (f"; changed: {changed}" if changed else "")


def plan_resumption(
    folder: Path,
    settings: RunSettings,
    ds_config: dict[str, Any],
    launch: dict[str, Any],
    *,
    elastic: bool,
    lengthen: How | None = None,
) -> Resumption:
    """Check that the run may be resumed here, and find its newest sound checkpoint.

    Damaged checkpoints are reported on stderr and renamed.

    Args:
        folder: of the run.
        settings: of the run.
        ds_config: filled by `fill_ds_config`.
        launch: number of ranks and identity of the data, as in launches.jsonl.
        elastic: whether the execution may differ from before.
        lengthen: how the schedules continue, if `settings` has more steps or hours.

    Raises:
        ConfigError: data or settings differ (they are named), a file of the run is damaged, or all
            its checkpoints are; or it becomes longer, and `lengthen` is None.
    """
    before = _last_launch(folder)
    if any(
        before.get(name, launch[name]) != launch[name] for name in ("training_data", "held_out")
    ):
        raise ConfigError(
            f"cannot resume {folder}: the shards are not those that it was started on; "
            "restore them, or start a new run"
        )
    stored, longer, changes = _compared(folder, settings, lengthen)
    filled = read_json_object(folder / "ds_config.json", fix=FIX)
    changes |= _changes(flat({"ds_config": filled}), flat({"ds_config": ds_config}))
    if "world_size" in before:
        ranks = ({"world_size": found["world_size"]} for found in (before, launch))
        changes |= _changes(*ranks)
    _refuse(folder, changes, elastic=elastic, longer=longer)
    if elastic:
        _note_other_draws(settings, before.get("world_size"), launch["world_size"])
    checkpoint = find_checkpoint(folder)
    if longer is None or lengthen is None:
        return Resumption(checkpoint, changes)
    step = 0 if checkpoint is None else step_of(checkpoint)
    settings = lengthened(settings, how=lengthen, step=step)
    changes |= _changes(stored, _flat(settings))
    lengthening = Lengthening(longer, stored[longer], lengthen, settings)
    return Resumption(checkpoint, changes, lengthening)


def finished_already(
    folder: Path, settings: RunSettings, *, elastic: bool, lengthen: How | None
) -> str | None:
    """Return what to say where a run is resumed that has reached its end; None: it has not.

    Needs neither the data nor the machine of the run. Arguments as of `plan_resumption`.

    Raises:
        ConfigError: the finished run had other settings, or becomes longer and `lengthen` is None.
    """
    _, longer, changes = _compared(folder, settings, lengthen)
    end = finished(folder)
    if end is None or longer is not None:
        return None
    _refuse(folder, changes, elastic=elastic)
    more = "--hours" if settings.hours is not None else "--steps"
    command = shell_command("train", folder, "--resume", more, "N", "--lengthen", "stretch")
    return (
        f"{folder} is finished already: {end.step:,} steps, held-out loss "
        f"{end.held_out_loss:.4f}; nothing to do\n"
        f"to lengthen it: {command} (or restart)"
    )


def find_checkpoint(run: Path) -> Path | None:
    """Return the newest sound checkpoint of a run; report and rename newer, damaged ones.

    Raises:
        CheckpointError: there are checkpoints, and all of them are damaged.
    """
    checkpoint, complaints = newest_sound_checkpoint(run)
    for complaint in complaints:
        print(
            f"warning: {complaint}; it was renamed to *.damaged, and the run resumes from "
            f"{checkpoint}",
            file=sys.stderr,
        )
    return checkpoint


def _compared(
    folder: Path, settings: RunSettings, lengthen: How | None
) -> tuple[dict[str, Any], str | None, Changes]:
    """Return the settings of the run so far, the one that lengthens it, and all that differ."""
    # A run older than a setting was started with the behaviour that is its default today.
    stored = _flat(RunSettings()) | flat(read_json_object(folder / RUN_FILE, fix=FIX))
    now = _flat(settings)
    longer = longer_setting(stored, now)
    if longer is not None and lengthen is None:
        raise choice_missing(folder, settings, longer, stored[longer])
    return stored, longer, _changes(stored, now)


def _flat(settings: RunSettings) -> dict[str, Any]:
    return flat(json.loads(as_json(settings)))


def _refuse(folder: Path, changes: Changes, *, elastic: bool, longer: str | None = None) -> None:
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
        hint = "; with --elastic it is resumed, equal within rounding"
    raise ConfigError(f"cannot resume {folder} with other settings: {described}{hint}")


def _note_other_draws(settings: RunSettings, ranks_before: int | None, ranks: int) -> None:
    drop = settings.layer_drop
    if drop.schedule == "none" or drop.draw_per == "step" or ranks_before in (None, ranks):
        return
    count = micro_batches_per_step(settings, ranks)
    print(
        f"note: layer drop draws for each of the {count} micro-batches of a step, and their number "
        "depends on the number of ranks: from here on other blocks may be skipped than on as many "
        "ranks as before; layer_drop.draw_per=step does not depend on it",
        file=sys.stderr,
    )


def _last_launch(folder: Path) -> dict[str, Any]:
    launches = read_json_lines(folder / "launches.jsonl", fix=FIX)
    return launches[-1] if launches else {}


def _changes(before: dict[str, Any], now: dict[str, Any]) -> Changes:
    return {
        name: (before.get(name), now.get(name))
        for name in before | now
        if before.get(name) != now.get(name)
    }
