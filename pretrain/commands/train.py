"""Pre-train an encoder.

    tupelo train RECIPE                          one process, on a GPU or a CPU
    deepspeed --module pretrain train RECIPE                 all GPUs of this machine
    tupelo train runs/NAME --resume              continue from the newest checkpoint

Every setting of the recipe can be changed: --section.name value.
"""

import argparse
import dataclasses
from pathlib import Path
from typing import Any, Literal

from data_prep.shards.format import ShardSet
from data_prep.shards.manifest import MANIFEST_FILE, sha256_of
from pretrain.checkpoint.format import Checkpoint
from pretrain.checkpoint.lengthening import WAYS, How
from pretrain.checkpoint.resume import Resumption, finished_already, plan_resumption
from pretrain.checkpoint.starting import refuse_to_resume_nothing, refuse_to_start
from pretrain.checkpoint.writer import Saver
from pretrain.config.ds_config import compute_type, zero_stage
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import add_settings
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
from pretrain.model.objectives import Objective
from pretrain.profiling.hardware import peak_flops
from pretrain.train.progress import Progress
from pretrain.train.provenance import num_hosts
from pretrain.train.run_folder import RunRecord
from pretrain.train.summary import describe_rates, describe_run
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
    parser.add_argument(
        "--lengthen",
        choices=WAYS,
        help="with --resume and more --steps or --hours than before: follow the schedule of a run "
        "of that length from here on, or restart it for what is left",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print settings, size and cost of the run, and exit"
    )
    parser.set_defaults(source=add_settings(parser))


def main(arguments: argparse.Namespace) -> None:
    """Build everything that the settings describe, and train."""
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
        lengthen: How | None = arguments.lengthen
        end = on_first_rank(ranks, lambda: _check_folder(folder, settings, how, lengthen))
        if end is None:
            run(settings, ds_config, ranks, interruption, folder=folder, how=how, lengthen=lengthen)
        elif ranks.is_first:
            print(end)
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
    lengthen: How | None = None,
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
        ranks, lambda: _resumption(record, settings, ds_config, launch, how=how, lengthen=lengthen)
    )
    checkpoint, lengthening = resumption.checkpoint, resumption.lengthening
    if lengthening is not None:
        settings = lengthening.settings
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
    if ranks.is_first and lengthening is not None:
        print(f"{lengthening.describe()}: {describe_rates(progress)}")
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


def _check_folder(
    folder: Path, settings: RunSettings, how: Start, lengthen: How | None
) -> str | None:
    """Refuse a folder that does not suit; return what to say if its run is finished already."""
    if how != "start":
        refuse_to_resume_nothing(folder)
        return finished_already(folder, settings, elastic=how == "elastic", lengthen=lengthen)
    if lengthen is not None:
        raise ConfigError("--lengthen belongs to --resume; a new run has the steps that you give")
    if settings.hours is not None and settings.restarts_after:
        raise ConfigError(
            f"restarts_after={settings.restarts_after[0]} counts steps, and a new run of given "
            "hours has no schedule of steps; give --steps without --hours"
        )
    refuse_to_start(folder)
    return None


def _resumption(
    record: RunRecord,
    settings: RunSettings,
    ds_config: dict[str, Any],
    launch: dict[str, Any],
    *,
    how: Start,
    lengthen: How | None,
) -> Resumption:
    if how == "start":
        return Resumption(checkpoint=None, changes={})
    record.hold()
    resumption = plan_resumption(
        record.folder, settings, ds_config, launch, elastic=how == "elastic", lengthen=lengthen
    )
    if lengthen is not None and resumption.lengthening is None:
        print("note: --lengthen has no effect, the run has this length already")
    return resumption


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
