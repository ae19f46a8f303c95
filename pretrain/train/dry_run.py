"""Describes a run before it starts: size, memory and disk; time and cost if they are measured."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy
from tabulate import tabulate

from data_prep.shards.format import ShardSet
from pretrain.checkpoint.resume import finished_already, micro_sequences_before
from pretrain.config.ds_config import zero_stage
from pretrain.config.settings import RunSettings
from pretrain.data.shards import existing_shards
from pretrain.distributed.failures import joined_ranks
from pretrain.distributed.ranks import Ranks, on_first_rank
from pretrain.engine.execution import plan_execution, this_machine
from pretrain.engine.footprint import checkpoint_bytes, needed_bytes, size
from pretrain.engine.micro_batches import MicroBatches, choose_micro_batches, free_bytes
from pretrain.model.cost import parameters_by_group
from pretrain.reports.words import amount, paragraph
from pretrain.schedules.horizon import SECONDS_PER_HOUR
from pretrain.train.checks import ds_config_of, obstacles
from pretrain.train.measured_steps import MeasuredSteps
from pretrain.train.recording.progress import Progress
from pretrain.train.request import RunRequest

MEASURES = "tupelo train with --dry-run --measure 60 measures it"

Rows = list[tuple[str, str]]  # of the description


class Found(NamedTuple):
    """What is known of the execution of a run."""

    micro_batches: MicroBatches
    rows: Rows
    seconds_per_step: float | None = None  # None: not measured


def measured_dry_run(request: RunRequest | None, seconds: float) -> bool:
    """Take optimizer steps for about so many seconds, then do as `dry_run`; on all ranks.

    The first rank alone has the request. A warm-up comes before the steps that are measured.

    Raises:
        UserError: this machine cannot execute the run.
    """
    with joined_ranks() as ranks:
        asked = on_first_rank(ranks, lambda: request)
        assert asked is not None
        steps = MeasuredSteps(asked.settings, ranks)
        count, metrics = steps.metrics_of_seconds(seconds)
        per_step = steps.progress.tokens_per_step / metrics["tokens_per_second"]
        rate = f"{steps.rate.flops_per_second:.3e} FLOP/s a rank ({steps.rate.source})"
        rows = [
            ("measured", f"{count:,} steps of {steps.source}"),
            ("seconds per step", f"{per_step:.4g}"),
            ("executed as", steps.engine.describe()),
            ("tokens/s", f"{metrics['tokens_per_second']:,.0f}"),
            ("model FLOPs utilisation", f"{metrics['model_flops_utilisation']:.1%} of {rate}"),
            ("peak memory", f"{metrics['peak_memory_bytes'] / 2**20:,.1f} MiB"),
        ]
        found = Found(steps.engine.micro_batches, rows, per_step)
        return on_first_rank(ranks, lambda: dry_run(asked, ranks, found))


def dry_run(request: RunRequest, ranks: Ranks, found: Found | None = None) -> bool:
    """Print what a run would be, and return whether it can start, or resume, on a fit machine.

    Memory is estimated unless `found` says what was measured.

    Raises:
        ConfigError: there is no such run anywhere: its settings do not go together.
    """
    settings, ds_config = request.settings, ds_config_of(request, ranks)
    refused = obstacles(request, ds_config, ranks)
    if request.beginning != "start" and "folder" not in refused:
        finished = finished_already(request.folder, settings, lengthen=request.lengthen)
        if finished is not None:
            print(finished)
            return True
    if found is None and "machine" not in refused:
        execution = plan_execution(settings, this_machine(ds_config, ranks.device, ranks.gpu))
        before = micro_sequences_before(request.folder) if request.beginning == "resume" else None
        division = choose_micro_batches(settings, ds_config, ranks, execution, before=before)
        run = settings, ds_config, ranks.world_size, execution, division.sequences
        memory = f"about {size(needed_bytes(*run))} of {size(free_bytes(ranks))} free"
        found = Found(division, [("memory per rank", memory)])
    if found is not None:
        settings = found.micro_batches.of(settings)
        ds_config = found.micro_batches.filled_in(ds_config)
    steps = settings.steps if settings.hours is None else None
    seconds = None if found is None else found.seconds_per_step
    if seconds is not None and settings.hours is not None:
        steps = max(1, int(settings.hours * SECONDS_PER_HOUR / seconds))
    print(describe_run(settings, ds_config, ranks.world_size, steps))
    shards = None if "data" in refused else existing_shards(settings)
    rows = [] if found is None else found.rows
    rows += _disk_rows(settings, shards, steps, request.folder)
    print(f"\n{_in_columns([*rows, *_time_rows(settings, ranks, seconds)])}")
    for subject, obstacle in refused.items():
        cannot = "this machine cannot execute it" if subject == "machine" else "it cannot start"
        print(f"{cannot}: {obstacle}")
    return not refused.keys() - {"machine"}


def describe_run(
    settings: RunSettings, ds_config: dict[str, Any], world_size: int, steps: int | None
) -> str:
    """Return parameters by group, and the cost of a run of so many steps, as text."""
    parameters = parameters_by_group(settings.model, settings.objective, settings.electra)
    table = tabulate(
        [(name, f"{count:,}", f"{count / 1e6:.2f} M") for name, count in parameters.items()],
        headers=("parameters", "", ""),
        colalign=("left", "right", "right"),
        disable_numparse=True,
    )
    progress = Progress(settings, world_size)
    allowed = f"what {settings.hours or 0:g} h allow; {MEASURES}"
    passes = progress.micro_batches_per_step
    full = progress.pass_flops([1] * settings.model.num_layers) * passes
    mean = progress.mean_pass_flops() * passes
    saved = ""
    if settings.layer_drop.schedule != "none":
        saved = f"; layer drop saves {1 - mean / full:.1%} of those at full depth"
    division = f"{world_size} x {passes} x {ds_config['train_micro_batch_size_per_gpu']}"
    rows = [
        ("ranks x micro-batches x sequences", division),
        ("ZeRO stage", str(zero_stage(ds_config))),
        ("tokens per step", f"{progress.tokens_per_step:,}"),
        ("tokens in all", f"{progress.tokens_per_step * steps:,}" if steps else allowed),
        ("FLOPs per step, full depth", f"{full:.3e}"),
        ("FLOPs in all", (f"{steps * mean:.3e}" if steps else allowed) + saved),
    ]
    return f"{table}\n\n{_in_columns(rows)}"


def _disk_rows(
    settings: RunSettings, shards: ShardSet | None, steps: int | None, folder: Path
) -> Rows:
    """Return what a run takes on the disk, and what is free where its folder is."""
    data = "to be built: 2 bytes a token of the text, 4 with over 65,536 ids"
    if shards is not None:
        manifest = shards.manifest
        rows = sum(split.rows for split in manifest.splits.values())
        of_row = numpy.dtype(manifest.dtype).itemsize * manifest.sequence_length
        data = f"{size(rows * of_row)} in {shards.folder}"
        if steps is not None:
            passes = steps * settings.batch.global_sequences / manifest.splits["train"].rows
            data += f", read {passes:.3g} times"
    there = next(each for each in (folder, *folder.absolute().parents) if each.is_dir())
    free = f"{size(shutil.disk_usage(there).free)} in {there}"
    checkpoints = f"{size(checkpoint_bytes(settings))} each"
    return [("checkpoints", checkpoints), ("shards", data), ("free", free)]


def _time_rows(settings: RunSettings, ranks: Ranks, seconds_per_step: float | None) -> Rows:
    """Return time and cost of a run: GPU hours, or hours of a machine without one."""
    hours = settings.hours
    if hours is None:
        if seconds_per_step is None:
            return [("time", f"not known; where it will run, {MEASURES}")]
        hours = settings.steps * seconds_per_step / SECONDS_PER_HOUR
    time = amount(SECONDS_PER_HOUR * hours, "training_seconds")
    cost = f"{hours:.3g} hours of this machine"
    if ranks.device == "cuda":
        cost = f"{hours * ranks.world_size:.3g} GPU hours"
    return [("time", f"{time}, without evaluation and checkpoints"), ("cost", cost)]


def _in_columns(rows: Sequence[tuple[str, str]]) -> str:
    """Return names and texts as two columns within the width of the terminal."""
    first = max(len(name) for name, _ in rows) + 2
    width = shutil.get_terminal_size().columns - 1
    return "\n".join(
        paragraph(text, width, first=name.ljust(first), rest=" " * first) for name, text in rows
    )
