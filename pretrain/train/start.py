"""A launch: join the ranks, check the run, build all that its settings describe, and train it."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from data_prep.shards.format import ShardSet
from data_prep.shards.manifest import MANIFEST_FILE, sha256_of
from pretrain.checkpoint.folders import identity_of
from pretrain.checkpoint.format import Checkpoint
from pretrain.checkpoint.resume import Resumption, finished_already, plan_resumption
from pretrain.checkpoint.writer import Saver
from pretrain.config.ds_config import compute_type
from pretrain.config.errors import ConfigError
from pretrain.config.run_files import PLATEAU_MARGIN
from pretrain.config.settings import DEFAULT_OBJECTIVE, RunSettings
from pretrain.convert.initial_weights import load_initial_weights
from pretrain.data.frequencies import frequency_entropy
from pretrain.data.shards import held_out_fingerprint, open_data, with_text_of, with_tokenizer
from pretrain.distributed.failures import joined_ranks
from pretrain.distributed.hardware import peak_flops
from pretrain.distributed.ranks import Ranks, from_all_ranks, on_first_rank
from pretrain.distributed.signals import Interruption
from pretrain.engine.agreement import refused_once
from pretrain.engine.engine import Engine
from pretrain.engine.launch import build_engine
from pretrain.model.objectives.objective import Objective
from pretrain.train.checks import check_before_work
from pretrain.train.recording.progress import Progress
from pretrain.train.recording.provenance import num_hosts
from pretrain.train.recording.run_folder import RunRecord
from pretrain.train.request import RunRequest
from pretrain.train.trainer import Trainer


def start(read_request: Callable[[], RunRequest], interruption: Interruption) -> None:
    """Join the ranks, check the run before any work, and train it to its end.

    Raises:
        ConfigError: the run may not start here, or the data or the machine do not fit it.
        ShardError: the data are damaged.
    """
    with joined_ranks(interruption) as ranks:
        request = on_first_rank(ranks, read_request)
        ds_config, finished = on_first_rank(ranks, lambda: check_before_work(request, ranks))
        if finished is None:
            run(request, ds_config, ranks, interruption)
        elif ranks.is_first:
            print(finished)


def run(
    request: RunRequest, ds_config: dict[str, Any], ranks: Ranks, interruption: Interruption
) -> None:
    """Start or resume a run that was checked, and train it to its end.

    Raises:
        ConfigError: the folder is in use, or not shared, or the run may not be resumed like this.
        ShardError: the data are damaged.
    """
    is_new = request.beginning == "start"
    shards = on_first_rank(ranks, lambda: open_data(request.settings))
    settings = with_tokenizer(with_text_of(request.settings, shards.manifest), shards)
    request = request._replace(settings=settings)
    launch = _launch(settings, shards, ranks)
    entropy: float = launch["frequency_entropy"]
    predicts_words = settings.objective == DEFAULT_OBJECTIVE
    record = RunRecord(request.folder)
    resumption = on_first_rank(ranks, lambda: _resumption(request, record, ds_config, launch))
    checkpoint = resumption.checkpoint
    if ranks.is_first and not is_new:
        print(resumption.describe())
    rate = peak_flops(ranks.device, compute_type(ds_config))
    engine, initial_weights = _built(settings, ds_config, shards, ranks, resumption)
    executed = engine.micro_batches.of(settings)
    if ranks.is_first:
        print(engine.describe())
        if predicts_words:
            print(f"unigram entropy, the loss of word frequencies alone: {entropy:.4f}")
    progress = Progress(executed, ranks.world_size)
    if checkpoint is not None:
        saved = Checkpoint(checkpoint)
        progress.load(saved.content.progress)
        engine.restore(saved)
    if ranks.is_first and resumption.longer:
        before, now = resumption.changes["steps"]
        print(f"lengthened from {before:,} to {now:,} steps, schedules stretched")
    if is_new:
        on_first_rank(ranks, lambda: record.create(settings, engine.ds_config, shards))
    elif resumption.changes or request.beginning == "elastic":  # perhaps other micro-batches
        on_first_rank(ranks, lambda: record.describe(settings, engine.ds_config))
    launch |= {
        "matrix_rate": dataclasses.asdict(rate),
        "execution": dataclasses.asdict(engine.execution),
        "micro_batches": dataclasses.asdict(engine.micro_batches),
        "precision": str(compute_type(ds_config)).removeprefix("torch."),
        "zero_stage": engine.zero_stage,
    }
    launch["initial_weights"] = initial_weights
    launch["resumed_from"] = None if is_new else progress.step
    launch["changed_settings"] = resumption.changes
    on_first_rank(ranks, lambda: record.begin(progress.counters, launch, settings))
    with refused_once(ranks):
        if len({*from_all_ranks(identity_of(request.folder), ranks)}) > 1:
            raise ConfigError(f"{request.folder} must be on a disk that all machines share")
    newest = None if checkpoint is None else progress.step
    saver = Saver(request.folder, settings.checkpoint, ranks, newest=newest)
    trainer = Trainer(executed, engine, shards, record, progress, rate, saver, interruption)
    judged = trainer.train() and ranks.is_first and predicts_words
    if judged and (loss := trainer.progress.result()["held_out_loss"]) > entropy - PLATEAU_MARGIN:
        length = "steps" if settings.hours is None else "hours"
        advice = f"give it more --{length}, or another --learning_rate.peak"
        if loss > 1 + math.log(settings.model.vocabulary_size):
            advice = "it diverged; give it a lower --learning_rate.peak"
        print(f"note: held-out loss {loss:.2f}, unigram entropy {entropy:.2f}: {advice}")


def _resumption(
    request: RunRequest, record: RunRecord, ds_config: dict[str, Any], launch: dict[str, Any]
) -> Resumption:
    if request.beginning == "start":
        return Resumption(checkpoint=None, changes={})
    record.hold()
    done = finished_already(request.folder, request.settings, lengthen=request.lengthen)
    if done is not None:  # by another process, since the folder was checked
        raise ConfigError(done)
    resumption = plan_resumption(
        request.folder,
        request.settings,
        ds_config,
        launch,
        elastic=request.beginning == "elastic",
        lengthen=request.lengthen,
    )
    if request.lengthen and not resumption.longer:
        print("note: --lengthen has no effect, the run has this length already")
    return resumption


def _built(
    settings: RunSettings,
    ds_config: dict[str, Any],
    shards: ShardSet,
    ranks: Ranks,
    resumption: Resumption,
) -> tuple[Engine, dict[str, Any] | None]:
    """Return the engine, and what is known of the weights that the run begins with."""
    initial: dict[str, Any] | None = None

    def load_weights(model: Objective) -> None:
        nonlocal initial
        initial = on_first_rank(ranks, lambda: load_initial_weights(model, settings, shards))

    engine = build_engine(
        settings,
        ds_config,
        ranks,
        load_weights=load_weights if resumption.checkpoint is None else None,
        sequences_before=resumption.micro_sequences,
    )
    return engine, initial


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
        "frequency_entropy": on_first_rank(ranks, lambda: frequency_entropy(shards, settings)),
    }
