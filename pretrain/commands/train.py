"""Pre-train an encoder.

    tupelo train RECIPE                       on all GPUs of this machine, or on its CPU
    tupelo train RECIPE --gpus 2              on the first two
    tupelo train runs/NAME --resume           continue from the newest checkpoint

Shards that are missing are built first. A launcher, such as torchrun, can start it too:

    torchrun --nproc-per-node 8 -m pretrain train RECIPE

Every setting of the recipe can be changed: --section.name value.
"""

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any, Literal

from data_prep.shards.format import ShardSet
from data_prep.shards.manifest import MANIFEST_FILE, sha256_of
from pretrain.checkpoint.format import Checkpoint
from pretrain.checkpoint.resume import (
    Resumption,
    plan_resumption,
    refuse_to_resume_nothing,
    refuse_to_start,
)
from pretrain.checkpoint.writer import Saver
from pretrain.config.ds_config import compute_type, zero_stage
from pretrain.config.recipe import add_settings, read_settings
from pretrain.config.settings import RunSettings
from pretrain.convert.initial_weights import load_initial_weights
from pretrain.data.shards import held_out_fingerprint, open_data
from pretrain.distributed.failures import failures_end_the_job
from pretrain.distributed.ranks import (
    Ranks,
    is_first_process,
    on_first_rank,
    start_ranks,
    stop_ranks,
)
from pretrain.distributed.signals import Interruption
from pretrain.engine.launch import Device, build_engine, checked_settings
from pretrain.launching import launch_plan
from pretrain.launching.given_words import given_words, setting_words
from pretrain.launching.preparation import prepare_data
from pretrain.model.objectives import Objective
from pretrain.profiling.hardware import peak_flops
from pretrain.train.progress import Progress
from pretrain.train.provenance import num_hosts
from pretrain.train.run_folder import RunRecord
from pretrain.train.summary import describe_run
from pretrain.train.trainer import Trainer

Start = Literal["start", "resume", "elastic"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tupelo train`."""
    parser.add_argument("--run-folder", type=Path, help="default: runs/NAME of the recipe")
    parser.add_argument("--resume", action="store_true", help="continue from the newest checkpoint")
    parser.add_argument(
        "--elastic",
        action="store_true",
        help="like --resume, and on another number of ranks or with other --engine settings, such "
        "as another ZeRO stage: equal within rounding",
    )
    launch_plan.add_launch_options(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="print settings, size and cost of the run, and exit"
    )
    parser.set_defaults(source=add_settings(parser))


def main(arguments: argparse.Namespace) -> None:
    """Build everything that the settings describe, and train."""
    plan = launch_plan.plan_launch(arguments.gpus, arguments.hostfile)
    if not launch_plan.is_launched() and not arguments.dry_run:
        prepare_data(read_settings(arguments, arguments.source), setting_words(arguments))
        if not plan.is_one_process:
            words = given_words(arguments, without=launch_plan.OPTIONS)
            sys.exit(plan.run(["train", *words]).status)
        plan.apply()
    with Interruption(prints=is_first_process()) as interruption:
        ranks = start_ranks()
        try:
            with failures_end_the_job(ranks, interruption):
                _main(arguments, ranks, interruption)
        finally:
            stop_ranks()


def _main(arguments: argparse.Namespace, ranks: Ranks, interruption: Interruption) -> None:
    # A dry run may describe a run that this machine cannot execute.
    device: Device = "cuda" if arguments.dry_run else ranks.device
    settings, ds_config = on_first_rank(ranks, lambda: checked_settings(arguments, ranks, device))
    if not arguments.dry_run:
        folder = _run_folder(arguments, settings)
        how: Start = "resume" if arguments.resume else "start"
        how = "elastic" if arguments.elastic else how
        run(settings, ds_config, ranks, interruption, folder=folder, how=how)
    elif ranks.is_first:
        print(describe_run(settings, ds_config, ranks.world_size))


def run(
    settings: RunSettings,
    ds_config: dict[str, Any],
    ranks: Ranks,
    interruption: Interruption,
    *,
    folder: Path,
    how: Start,
) -> None:
    """Start or resume the run in `folder` and train it to its end.

    Raises:
        ConfigError: the run may not start here, or the data or the machine do not fit it.
        ShardError: the data are damaged.
    """
    shards = on_first_rank(ranks, lambda: open_data(settings))
    launch = _launch(settings, shards, ranks)
    record = RunRecord(folder)
    resumption = on_first_rank(
        ranks, lambda: _resumption(record, settings, ds_config, launch, how=how)
    )
    checkpoint = resumption.checkpoint
    if ranks.is_first and how != "start":
        print(resumption.describe())
    rate = peak_flops(ranks.device, compute_type(ds_config))
    launch["initial_weights"] = None

    def start_from_given_weights(model: Objective) -> None:
        launch["initial_weights"] = on_first_rank(
            ranks, lambda: load_initial_weights(model, settings, shards)
        )

    load_weights = start_from_given_weights if checkpoint is None else None
    engine = build_engine(settings, ds_config, ranks, load_weights=load_weights)
    if ranks.is_first:
        print(engine.execution.describe())
    progress = Progress(settings, ranks.world_size)
    if checkpoint is not None:
        saved = Checkpoint(checkpoint)
        progress.load(saved.content.progress)
        engine.restore(saved)
    if how == "start":
        on_first_rank(ranks, lambda: record.create(settings, ds_config, shards))
    elif resumption.changes:
        on_first_rank(ranks, lambda: record.describe(settings, ds_config))
    launch["resumed_from"] = None if how == "start" else progress.step
    launch["matrix_rate"] = dataclasses.asdict(rate)
    launch["execution"] = dataclasses.asdict(engine.execution)
    launch["precision"] = str(compute_type(ds_config)).removeprefix("torch.")
    launch["zero_stage"] = zero_stage(ds_config)
    launch["changed_settings"] = resumption.changes
    on_first_rank(ranks, lambda: record.begin(progress.step, launch))
    newest = None if checkpoint is None else progress.step
    saver = Saver(folder, settings.checkpoint, ranks, newest=newest)
    Trainer(settings, engine, shards, record, progress, rate, saver, interruption).train()


def _resumption(
    record: RunRecord,
    settings: RunSettings,
    ds_config: dict[str, Any],
    launch: dict[str, Any],
    *,
    how: Start,
) -> Resumption:
    if how == "start":
        refuse_to_start(record.folder)
        return Resumption(checkpoint=None, changes={})
    refuse_to_resume_nothing(record.folder)
    record.hold()
    return plan_resumption(record.folder, settings, ds_config, launch, elastic=how == "elastic")


def _launch(settings: RunSettings, shards: ShardSet, ranks: Ranks) -> dict[str, Any]:
    """Return what a resumed run must find again besides its settings."""
    return {
        "world_size": ranks.world_size,
        "hosts": num_hosts(ranks.world_size),
        "source": shards.manifest.source,
        "manifest": sha256_of(shards.folder / MANIFEST_FILE),
        "tokenizer": shards.manifest.tokenizer.sha256,
        "training_data": shards.split("train").fingerprint(),
        "held_out": held_out_fingerprint(shards, settings),
    }


def _run_folder(arguments: argparse.Namespace, settings: RunSettings) -> Path:
    if arguments.run_folder is not None:
        return Path(arguments.run_folder)
    recipe = Path(arguments.recipe)
    return recipe if (recipe / "run.json").is_file() else Path("runs") / settings.name
