"""The training loop: one launch of a run, and what happens at some of its steps."""

import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from tqdm import tqdm

from data_prep.shards import ShardSet
from pretrain.config import ConfigError, RunSettings
from pretrain.data import HeldOutBatches, MaskedBatch, Place, TrainingBatches, batches_from
from pretrain.ds_config import micro_sequences
from pretrain.engine import Engine, on_first_rank
from pretrain.layer_drop import scales_of_step
from pretrain.matrix_rate import MatrixRate
from pretrain.memory import peak_memory_bytes
from pretrain.model.cost import parameters_by_group
from pretrain.progress import Progress, progress_bar
from pretrain.run_record import RunRecord
from pretrain.saver import Saver
from pretrain.schedules import learning_rate_at


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
        saver: Saver,
    ) -> None:
        self.settings, self.engine, self.record = settings, engine, record
        self.progress, self.ranks, self.rate = progress, engine.ranks, rate
        self.saver = saver
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
        self.saver.wait()
        if self.saver.newest != progress.step:
            raise ConfigError(
                f"the last checkpoint, of step {progress.step}, could not be written; make room "
                f"for it and go on with: python -m pretrain train {self.record.folder} --resume"
            )
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
        return logs, evaluates, saves or done in settings.checkpoint.pinned

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
        self.saver.save(self.progress.step, self.engine.snapshot(), self.progress.state())

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


def _dropout_seed(seed: int, step: int, rank: int) -> int:
    # Odd 64-bit constants spread the three numbers; torch mixes the result further.
    return (
        seed * 0x9E3779B97F4A7C15 + step * 0xBF58476D1CE4E5B9 + rank * 0x94D049BB133111EB
    ) % 2**63
