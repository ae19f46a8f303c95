"""Where a run resumes, and that it is the same run: its settings, data and execution.

On as many ranks with the same settings a resumed run equals the uninterrupted one bit for bit. With
--elastic the number of ranks, the ZeRO stage and the execution may change: samples, their order,
learning rate and schedules stay the same, and losses are equal within rounding (dropout and, unless
layer_drop.draw_per=step, layer drop draw other numbers; unless data.masking=tokens, rows weigh a
little more or less). More steps lengthen the run.
"""

from pathlib import Path
from typing import Any, NamedTuple

from data_prep.files.program import shell_command
from pretrain.checkpoint.changes import Changes, changed, compared, refuse_changes
from pretrain.checkpoint.folders import newest_sound_checkpoint, step_of
from pretrain.config.errors import ConfigError
from pretrain.config.json_objects import read_json_object
from pretrain.config.run_files import DS_CONFIG_FILE, FIX, last_launch, result_of
from pretrain.config.settings import RunSettings, flat

NOT_CHOSEN = {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}


class Resumption(NamedTuple):
    """The checkpoint from which a run resumes, and the settings changed since its last launch."""

    checkpoint: Path | None  # None: from the beginning
    changes: Changes
    longer: bool = False  # whether it is lengthened
    # Of the last launch, if the setting is "auto": other micro-batches would be equal within
    # rounding only. With --elastic, None: they are chosen for the machine that there is now.
    micro_sequences: int | None = None

    def describe(self) -> str:
        """Return where the run resumes, and what has changed, in one line."""
        origin = "the beginning: it has no checkpoint yet"
        if self.checkpoint is not None:
            origin = f"step {step_of(self.checkpoint):,}"
        changes = ", ".join(
            f"{name} ({before} to {now})" for name, (before, now) in sorted(self.changes.items())
        )
        return f"resuming from {origin}" + (f"; changed: {changes}" if changes else "")


def plan_resumption(
    folder: Path,
    settings: RunSettings,
    ds_config: dict[str, Any],
    launch: dict[str, Any],
    *,
    elastic: bool,
    lengthen: bool = False,
) -> Resumption:
    """Check that the run may be resumed here, and find its newest sound checkpoint.

    Damaged checkpoints are reported on stderr and renamed. `ds_config` is filled by
    `fill_ds_config`, and `launch` has the number of ranks and the identity of the data, as in
    launches.jsonl. With `elastic` the execution may differ from before, and with `lengthen`
    `settings` may have more steps.

    Raises:
        ConfigError: data or settings differ (they are named), a file of the run is damaged, or all
            its checkpoints are; or it becomes longer without `lengthen`.
    """
    before = last_launch(folder)
    data = launch["training_data"], launch["held_out"]
    if before is not None and (before.training_data, before.held_out) != data:
        raise ConfigError(
            f"cannot resume {folder}: the shards are not those that it was started on; "
            "restore them, or start a new run"
        )
    longer, changes = compared(folder, settings, lengthen=lengthen)
    filled = read_json_object(folder / DS_CONFIG_FILE, fix=FIX)
    chooses = settings.batch.micro_sequences == "auto"
    if chooses:  # what it chose is no setting, and not known here for this launch
        filled, ds_config = ({**each, **NOT_CHOSEN} for each in (filled, ds_config))
    micro_sequences = micro_sequences_before(folder) if chooses and not elastic else None
    changes |= changed(flat({"ds_config": filled}), flat({"ds_config": ds_config}))
    if before is not None:
        ranks = before.world_size, launch["world_size"]
        changes |= changed(*({"world_size": count} for count in ranks))
    refuse_changes(folder, changes, elastic=elastic, longer=longer)
    checkpoint = newest_sound_checkpoint(folder)
    if checkpoint is None and result_of(folder) is not None:
        raise ConfigError(
            f"{folder} is finished, and its checkpoints are gone: restore one to lengthen it, or "
            "start a new run"
        )
    return Resumption(checkpoint, changes, longer, micro_sequences)


def micro_sequences_before(folder: Path) -> int | None:
    """Return the sequences per rank and pass of the last launch; None: its folder does not say.

    Raises:
        ConfigError: a file that holds it is damaged.
    """
    launch = last_launch(folder)
    number = launch.micro_batches.sequences if launch else None
    file = folder / DS_CONFIG_FILE
    if number is None and file.is_file():  # of a run from before there was a choice
        number = read_json_object(file, fix=FIX).get("train_micro_batch_size_per_gpu")
    return number


def finished_already(folder: Path, settings: RunSettings, *, lengthen: bool) -> str | None:
    """Return what to say where a run is resumed that has reached its end; None: it has not.

    Needs neither the data nor the machine of the run. Arguments as of `plan_resumption`; the
    settings are not refused here.

    Raises:
        ConfigError: the run becomes longer without `lengthen`.
    """
    longer, _ = compared(folder, settings, lengthen=lengthen)
    end = result_of(folder)
    if end is None or longer:
        return None
    command = shell_command("train", folder, "--resume", "--steps", "N", "--lengthen")
    more = f"\nto lengthen it: {command}" if settings.hours is None else ""
    return (
        f"{folder} is finished already: {end.step:,} steps, held-out loss "
        f"{end.held_out_loss:.4f}; nothing to do{more}"
    )
