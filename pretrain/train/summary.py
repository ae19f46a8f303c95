"""Describes a run before it starts: size, disk, time and cost (`--dry-run`)."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import torch
from tabulate import tabulate

from data_prep.files.program import shell_command
from data_prep.shards.format import ShardSet
from pretrain.checkpoint.resume import (
    finished_already,
    micro_sequences_before,
    zero_stage_before,
)
from pretrain.config.ds_config import compute_type
from pretrain.config.errors import ConfigError
from pretrain.config.settings import RunSettings, as_json
from pretrain.data.shards import existing_shards
from pretrain.distributed.ranks import Ranks
from pretrain.engine.execution import machine_of, plan_execution
from pretrain.engine.footprint import (
    checkpoint_bytes,
    num_kept_checkpoints,
    optimizer_state_bytes,
    size,
)
from pretrain.engine.launch import checked_settings
from pretrain.engine.micro_batches import estimated_micro_batches
from pretrain.engine.zero_choice import stage_of_run
from pretrain.model.cost import parameters_by_group
from pretrain.profiling.hardware import DATASHEETS, PeakFlops, peak_flops
from pretrain.reports.terminal import paragraph
from pretrain.reports.words import amount
from pretrain.schedules.horizon import SECONDS_PER_HOUR
from pretrain.schedules.layer_drop import check_row_draws, keep_probabilities
from pretrain.schedules.run_thetas import last_theta
from pretrain.train.checks import obstacles
from pretrain.train.recording.progress import Progress
from pretrain.train.request import RunRequest

# Of the measured rate of matrix products. The CPU comparison reaches 47 to 52 % in bf16 and 72 % in
# fp32 on one thread of an idle machine; encoders of BERT's size on GPUs mostly 30 to 50 % of the
# rate of the datasheet. So an estimate is right within a factor of 2, on an idle machine.
ASSUMED_UTILISATION = 0.4

# What Python and DeepSpeed take for a micro-batch, however small the model: 3 to 6 ms were measured
# with 2 layers x 32.
LEAST_SECONDS_PER_PASS = 0.005

REFERENCE_GPU = "A100-SXM4-80GB"  # for the estimate where this machine cannot execute a run


def dry_run(request: RunRequest, ranks: Ranks, *, show_settings: bool) -> bool:
    """Print what a run would be, and return whether it can start, or resume, on a fit machine.

    Args:
        request: what was asked for.
        ranks: that a start would have, here or on other GPUs.
        show_settings: whether the resolved settings are printed too, as JSON.

    Raises:
        ConfigError: there is no such run anywhere: its settings do not go together.
    """
    stage_before = zero_stage_before(request.folder) if request.beginning == "resume" else None
    settings, ds_config = checked_settings(request.settings, ranks, stage_before=stage_before)
    found = obstacles(request, settings, ds_config, ranks)
    if request.beginning != "start" and "folder" not in found:
        finished = finished_already(request.folder, settings, lengthen=request.lengthen)
        if finished is not None:
            print(finished)
            return True
    rate = None if "machine" in found else _peak_of(ranks, compute_type(ds_config))
    shards = None if "data" in found else existing_shards(settings)
    if show_settings:
        print(as_json(settings))
    rows: list[tuple[str, str]] = []
    if "machine" not in found:
        execution = plan_execution(settings, machine_of(ds_config, ranks))
        before = micro_sequences_before(request.folder) if request.beginning == "resume" else None
        estimated = estimated_micro_batches(settings, ds_config, ranks, execution, before=before)
        settings, ds_config = estimated.of(settings), estimated.filled_in(ds_config)
        check_row_draws(settings, ranks.world_size)
        rows.append(("micro-batches", estimated.describe()))
    print(describe_run(settings, ds_config, ranks.world_size))
    stage = stage_of_run(settings, ds_config, ranks)
    rows.append(("ZeRO stage", f"{stage.stage} ({stage.reason})"))
    rows += [*disk_rows(settings, shards), free_row(request.folder)]
    rows += _time_rows(settings, ranks, rate)
    print(f"\n{in_columns(rows)}")
    for subject, obstacle in found.items():
        cannot = "this machine cannot execute it" if subject == "machine" else "it cannot start"
        print(f"{cannot}: {obstacle}")
    return not found.keys() - {"machine"}


def describe_run(settings: RunSettings, ds_config: dict[str, Any], world_size: int) -> str:
    """Return parameters by group, and the cost of a step, as text."""
    parameters = parameters_by_group(settings.model, settings.objective, settings.electra)
    table = tabulate(
        [(name, f"{count:,}", f"{count / 1e6:.2f} M") for name, count in parameters.items()],
        headers=("parameters", "", ""),
        colalign=("left", "right", "right"),
        disable_numparse=True,
    )
    return f"{table}\n\n{in_columns(_step_rows(settings, ds_config, world_size))}"


def describe_rates(progress: Progress) -> str:
    """Return learning rate and theta of the next step, and of the last one where it is known."""
    schedule, drops = progress.schedule, progress.settings.layer_drop.schedule != "none"
    plans = [progress.next_plan()]
    if schedule.horizon.segment.end_step is not None:
        plans.append(schedule.plan(schedule.horizon.segment.end_step))
    return "learning rate " + ", ".join(
        f"{plan.learning_rate:.3g}{f' (theta {plan.theta:.3g})' * drops} at step {plan.step:,}"
        for plan in plans
    )


def in_columns(rows: Sequence[tuple[str, str]]) -> str:
    """Return names and texts as two columns within the width of the terminal."""
    first = max(len(name) for name, _ in rows) + 2
    width = shutil.get_terminal_size().columns - 1
    return "\n".join(
        paragraph(text, width, first=name.ljust(first), rest=" " * first) for name, text in rows
    )


def disk_rows(settings: RunSettings, shards: ShardSet | None) -> list[tuple[str, str]]:
    """Return what a run takes on the disk, in words; None: its shards are still to be built."""
    kept, one = num_kept_checkpoints(settings), checkpoint_bytes(settings)
    checkpoints = f"{size(one)} each"
    if kept is not None:
        checkpoints = f"{size(kept * one)}: {kept} are kept, of {checkpoints}"
    return [
        ("checkpoints", checkpoints),
        ("shards", _shards_in_words(shards)),
    ]


def free_row(folder: Path) -> tuple[str, str]:
    """Return the free space where a run folder is, or would be made."""
    there = next(each for each in (folder, *folder.absolute().parents) if each.is_dir())
    return "free", f"{size(shutil.disk_usage(there).free)} in {there}"


def cost_row(seconds: float, ranks: Ranks) -> tuple[str, str]:
    """Return what a run of so many seconds costs: GPU hours, or hours of a machine without one."""
    hours = seconds / SECONDS_PER_HOUR
    if ranks.device == "cuda":
        return "cost", f"{hours * ranks.world_size:.3g} GPU hours"
    return "cost", f"{hours:.3g} hours of this machine"


def estimated_seconds_per_step(settings: RunSettings, world_size: int, rate: PeakFlops) -> float:
    """Return how long a step may take, from its mean FLOPs over the run and the measured rate."""
    progress = Progress(settings, world_size)
    passes, reachable = progress.micro_batches_per_step, rate.flops_per_second * world_size
    seconds = progress.mean_pass_flops() / (ASSUMED_UTILISATION * reachable)
    return passes * max(seconds, LEAST_SECONDS_PER_PASS)


def _peak_of(ranks: Ranks, dtype: torch.dtype) -> PeakFlops:
    gpu = ranks.gpu
    if gpu is None:
        return peak_flops(ranks.device, dtype)
    if dtype not in gpu.types:
        known, asked = (str(each).removeprefix("torch.") for each in (gpu.types[-1], dtype))
        raise ConfigError(
            f"the rate of these GPUs is known for {known}, not for {asked}, which engine.ds_config "
            "asks for; leave that at auto"
        )
    return PeakFlops(gpu.flops_per_second, "of the datasheet")


def _time_rows(
    settings: RunSettings, ranks: Ranks, rate: PeakFlops | None
) -> list[tuple[str, str]]:
    """Return time and cost of a run: as given, or estimated from the rate of a rank's device.

    None: this machine cannot execute it.
    """
    left_out = "without evaluation and checkpoints"
    if settings.hours is not None:
        seconds = settings.hours * SECONDS_PER_HOUR
        return [("time", f"{settings.hours:g} h, {left_out}"), cost_row(seconds, ranks)]
    gpu = PeakFlops(
        DATASHEETS[REFERENCE_GPU].flops_per_second, f"of {ranks.world_size} {REFERENCE_GPU}"
    )
    seconds = settings.steps * estimated_seconds_per_step(settings, ranks.world_size, rate or gpu)
    time = amount(seconds, "training_seconds")
    share = f"at {ASSUMED_UTILISATION:.0%} of the rate"
    if rate is None:
        return [("time", f"not known here; about {time} {share} {gpu.source}")]
    return [
        ("time", f"about {time}, {left_out}"),
        cost_row(seconds, ranks),
        (
            "estimated",
            f"{share} of matrix products, {rate.flops_per_second / 1e9:,.0f} GFLOP/s; may be "
            f"wrong by a factor of 2; {shell_command('plan', 'RECIPE')} measures it",
        ),
    ]


def _step_rows(
    settings: RunSettings, ds_config: dict[str, Any], world_size: int
) -> list[tuple[str, str]]:
    progress = Progress(settings, world_size)
    accumulation = progress.micro_batches_per_step
    full = progress.pass_flops([1] * settings.model.num_layers) * accumulation
    kept = keep_probabilities(last_theta(settings), settings.model.num_layers, settings.layer_drop)
    last = progress.pass_flops(kept) * accumulation
    state = optimizer_state_bytes(settings, ds_config, world_size)
    micro = ds_config["train_micro_batch_size_per_gpu"]
    division = f"{world_size} x {accumulation} x {micro}"
    if settings.batch.micro_sequences == "auto":
        division += ", or as many passes as the device needs"
    return [
        ("ranks x micro-batches x sequences", division),
        ("tokens per step", f"{progress.tokens_per_step:,}"),
        ("tokens in all", _tokens(settings, progress.tokens_per_step)),
        ("FLOPs per step, full depth", f"{full:.3e}"),
        ("FLOPs per step, last step", f"{last:.3e} (expected {sum(kept):.2f} blocks)"),
        ("FLOPs in all", _flops(settings, progress.mean_pass_flops() * accumulation, full)),
        ("optimizer state per rank", size(state)),
    ]


def _shards_in_words(shards: ShardSet | None) -> str:
    if shards is None:
        return "to be built: 2 bytes a token of the text, 4 with over 65,536 ids"
    manifest = shards.manifest
    rows = sum(split.rows for split in manifest.splits.values())
    of_row = numpy.dtype(manifest.dtype).itemsize * manifest.sequence_length
    return f"{size(rows * of_row)} in {shards.folder}"


def _flops(settings: RunSettings, mean: float, full: float) -> str:
    """Return the FLOPs of a run, given those of a mean step and of one at full depth, in words."""
    in_all = f"{settings.steps * mean:.3e}"
    if settings.hours is not None:
        in_all = f"what {settings.hours:g} h allow"
    if settings.layer_drop.schedule == "none":
        return in_all
    return f"{in_all}; layer drop saves {1 - mean / full:.1%} of those at full depth"


def _tokens(settings: RunSettings, tokens_per_step: int) -> str:
    if settings.hours is not None:
        return f"what {settings.hours:g} h allow; {shell_command('plan')} measures it"
    return f"{tokens_per_step * settings.steps:,}"
