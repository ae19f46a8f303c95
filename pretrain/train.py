"""Pre-train an encoder.

    python -m pretrain train RECIPE                          one process, on a GPU or a CPU
    deepspeed --module pretrain train RECIPE                 all GPUs of this machine
    python -m pretrain train runs/NAME --resume              go on after the newest checkpoint

Every setting of the recipe can be changed: --section.name value.
"""

import argparse
import dataclasses
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from data_prep.shards import ShardSet
from pretrain.checked_settings import Device, checked_settings
from pretrain.config import RunSettings
from pretrain.data import (
    HeldOutBatches,
    MaskedBatch,
    Place,
    TrainingBatches,
    batches_from,
    held_out_fingerprint,
    open_data,
)
from pretrain.ds_config import compute_type, micro_sequences
from pretrain.engine import Engine, Ranks, on_first_rank, start_ranks, stop_ranks
from pretrain.execution import build_model
from pretrain.initial_weights import load_initial_weights
from pretrain.layer_drop import scales_of_step
from pretrain.matrix_rate import MatrixRate, matrix_rate
from pretrain.memory import peak_memory_bytes
from pretrain.model.cost import parameters_by_group
from pretrain.progress import Progress, progress_bar
from pretrain.recipe import add_settings
from pretrain.run_record import STATE_FILE, RunRecord
from pretrain.schedules import learning_rate_at
from pretrain.summary import describe_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `python -m pretrain train`."""
    parser.add_argument("--run-folder", type=Path, help="default: runs/NAME of the recipe")
    parser.add_argument("--resume", action="store_true", help="go on after the newest checkpoint")
    parser.add_argument(
        "--dry-run", action="store_true", help="print settings, size and cost of the run, and exit"
    )
    parser.set_defaults(source=add_settings(parser))


def main(arguments: argparse.Namespace) -> None:
    """Build everything that the settings describe, and train."""
    ranks = start_ranks()
    try:
        # A dry run may look at what this machine cannot execute.
        device: Device = "cuda" if arguments.dry_run else ranks.device
        settings, ds_config = on_first_rank(
            ranks, lambda: checked_settings(arguments, ranks, device)
        )
        if not arguments.dry_run:
            folder = _run_folder(arguments, settings)
            run(settings, ds_config, ranks, folder=folder, resume=arguments.resume)
        elif ranks.is_first:
            print(describe_run(settings, ds_config, ranks.world_size))
    finally:
        stop_ranks()


def run(
    settings: RunSettings,
    ds_config: dict[str, Any],
    ranks: Ranks,
    *,
    folder: Path,
    resume: bool,
) -> None:
    """Start or resume the run in `folder` and train it to its end.

    Raises:
        ConfigError: the run may not start here, or the data or the machine do not fit it.
        ShardError: the data are damaged.
    """
    shards = on_first_rank(ranks, lambda: open_data(settings))
    launch = _launch(settings, shards, ranks)
    record = RunRecord(folder)
    checkpoint = on_first_rank(
        ranks, lambda: record.checkpoint_to_resume(settings, ds_config, launch, resume=resume)
    )
    rate = matrix_rate(ranks.device, compute_type(ds_config))
    torch.manual_seed(settings.seed)
    model, execution = build_model(settings, ds_config, ranks.device)
    if ranks.is_first:
        print(execution.describe())
    launch["initial_weights"] = None
    if checkpoint is None:
        # The engine gives the weights of the first rank to all others.
        launch["initial_weights"] = on_first_rank(
            ranks, lambda: load_initial_weights(model, settings, shards)
        )
    engine = Engine(model, settings, ds_config, ranks)
    progress = Progress(settings, ranks.world_size)
    if checkpoint is not None:
        progress.load(checkpoint / STATE_FILE)
        engine.load(checkpoint)
    if not resume:
        on_first_rank(ranks, lambda: record.create(settings, ds_config, shards))
    launch["resumed_from"] = progress.step if resume else None
    launch["matrix_rate"] = dataclasses.asdict(rate)
    launch["execution"] = dataclasses.asdict(execution)
    on_first_rank(ranks, lambda: record.begin(progress.step, launch))
    try:
        Trainer(settings, engine, shards, record, progress, rate).train()
    except KeyboardInterrupt:
        if ranks.is_first:
            print(f"\nstopped; go on with: python -m pretrain train {folder} --resume")
        raise


class Trainer:
    """One launch of a run: the loop, and what happens at some of its steps."""

    def __init__(
        self,
        settings: RunSettings,
        engine: Engine,
        shards: ShardSet,
        record: RunRecord,
        progress: Progress,
        rate: MatrixRate,
    ) -> None:
        self.settings, self.engine, self.record = settings, engine, record
        self.progress, self.ranks, self.rate = progress, engine.ranks, rate
        place = Place(
            micro_sequences(settings, self.ranks.world_size),
            rank=self.ranks.rank,
            world_size=self.ranks.world_size,
        )
        self.training_batches = TrainingBatches(shards, settings, place)
        self.held_out_batches = HeldOutBatches(shards, settings, place)

    def train(self) -> None:
        """Take the remaining optimizer steps.

        The clock covers training only: it stops, after the device has finished, whenever
        something is evaluated or written. With a budget of time, somebody looks at it then.
        """
        settings, progress, horizon = self.settings, self.progress, self.progress.horizon
        batches = self._batches()
        bar = progress_bar(settings, progress.step, shown=self.ranks.is_first)
        clock = time.perf_counter()
        while not horizon.is_end(progress.step):
            step = progress.step
            scales = scales_of_step(
                step, settings, theta=progress.theta(step), count=progress.micro_batches_per_step
            )
            # Dropout draws from (seed, step, rank): a resumed run needs no generator state.
            torch.manual_seed(_dropout_seed(settings.seed, step, self.ranks.rank))
            learning_rate = self._learning_rate(step)
            micro_batches = zip(islice(batches, len(scales)), scales, strict=True)
            progress.add_step(self.engine.train_step(micro_batches, learning_rate), scales)
            bar.update()
            if any(self._due(step + 1)) or horizon.is_due(step + 1):
                self.engine.synchronize()
                seconds = time.perf_counter() - clock
                progress.add_seconds(seconds, self.engine.take_spent())
                progress.fetch_losses(self.engine.mean_over_ranks)
                self._look_at_the_clock(bar)
                logs, evaluates, saves = self._due(step + 1)  # all three, if the time is up
                if logs:
                    self._log(learning_rate, bar)
                if evaluates:
                    self._evaluate(bar)
                if saves:
                    self._save()
                clock = time.perf_counter()
        bar.close()
        if self.ranks.is_first:
            self._finish(self._learning_rate(progress.step - 1))

    def _batches(self) -> Iterator[MaskedBatch]:
        accumulation = self.progress.micro_batches_per_step
        return batches_from(
            self.training_batches,
            self.progress.step * accumulation,
            None if self.settings.hours is not None else self.settings.steps * accumulation,
            workers=self.settings.data.loader_workers,
            pin_memory=self.ranks.device == "cuda",
        )

    def _learning_rate(self, step: int) -> float:
        settings, horizon = self.settings, self.progress.horizon
        position = horizon.position(step)
        return learning_rate_at(
            position, settings.learning_rate, settings.steps, stride=horizon.stride
        )

    def _look_at_the_clock(self, bar: "tqdm[Any]") -> None:
        """Let all ranks agree on how much time is spent, and on what is left of the schedule."""
        if self.settings.hours is not None:
            counters, horizon = self.progress.counters, self.progress.horizon
            seconds = on_first_rank(self.ranks, lambda: counters.training_seconds)
            horizon.renew(counters.step, seconds)
            bar.total = horizon.stretch.end_step

    def _due(self, done: int) -> tuple[bool, bool, bool]:
        settings = self.settings
        periods = (
            settings.log_every_steps,
            settings.evaluation.every_steps,
            settings.checkpoint.every_steps,
        )
        logs, evaluates, saves = (
            done % n == 0 or self.progress.horizon.is_end(done) for n in periods
        )
        return logs, evaluates, saves

    def _log(self, learning_rate: float, bar: "tqdm[Any]") -> None:
        memory = peak_memory_bytes(self.ranks.device)
        metrics = self.progress.take_metrics(learning_rate, self.rate, memory)
        bar.set_postfix_str(
            f"loss {metrics['loss']:.3f}, {metrics['tokens_per_second']:,.0f} tokens/s, "
            f"utilisation {metrics['model_flops_utilisation']:.1%}"
        )
        if self.ranks.is_first:
            self.record.log(metrics)

    def _evaluate(self, bar: "tqdm[Any]") -> None:
        batches = (self.held_out_batches[index] for index in range(len(self.held_out_batches)))
        loss, predictions = self.engine.evaluate(batches)
        evaluation = self.progress.take_evaluation(loss, predictions)
        if self.ranks.is_first:
            self.record.log_evaluation(evaluation)
            bar.write(f"step {evaluation['step']:>7,}: held-out loss {loss:.4f}")

    def _save(self) -> None:
        step = self.progress.step
        partial = on_first_rank(self.ranks, lambda: self.record.partial_folder(step))
        self.engine.save(partial)
        on_first_rank(
            self.ranks,
            lambda: self.record.complete_checkpoint(
                step, self.progress.state(), self.settings.checkpoint.keep_last
            ),
        )

    def _finish(self, final_learning_rate: float) -> None:
        parameters = parameters_by_group(self.settings.model)["total"]
        self.record.finish(
            {
                **self.progress.result(),
                "final_learning_rate": final_learning_rate,
                "peak_learning_rate": self.settings.learning_rate.peak,
                "parameters": parameters,
            }
        )
        print(f"finished: {self.progress.describe()}; run folder {self.record.folder}")


def _launch(settings: RunSettings, shards: ShardSet, ranks: Ranks) -> dict[str, Any]:
    """Return what a resumed run must find again besides its settings."""
    return {
        "world_size": ranks.world_size,
        "source": shards.manifest.source,
        "training_data": shards.split("train").fingerprint(),
        "held_out": held_out_fingerprint(shards, settings),
    }


def _run_folder(arguments: argparse.Namespace, settings: RunSettings) -> Path:
    if arguments.run_folder is not None:
        return Path(arguments.run_folder)
    recipe = Path(arguments.recipe)
    return recipe if (recipe / "run.json").is_file() else Path("runs") / settings.name


def _dropout_seed(seed: int, step: int, rank: int) -> int:
    # Odd 64-bit constants spread the three numbers; torch mixes the result further.
    return (
        seed * 0x9E3779B97F4A7C15 + step * 0xBF58476D1CE4E5B9 + rank * 0x94D049BB133111EB
    ) % 2**63
