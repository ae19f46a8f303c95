"""Measures optimizer steps of a recipe on this machine: their duration and their metrics.

The steps are those of training: same engine, same kind of batches, coins of the same distribution.
Only the learning rate is 0, which costs the same and cannot diverge.
"""

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import Dataset

from data_prep.masking import predictions_per_row
from data_prep.shards.format import ShardSet
from pretrain.config.batch import micro_sequences
from pretrain.config.settings import RunSettings
from pretrain.data.batches import MaskedBatch, Place, TrainingBatches, batches_from
from pretrain.distributed.ranks import Ranks, on_first_rank
from pretrain.engine.engine import Engine
from pretrain.profiling.hardware import PeakFlops, peak_memory_bytes
from pretrain.schedules.layer_drop import at_constant_theta
from pretrain.train.recording.progress import Progress

# Not counted: the first step compiles and allocates, the second may once more, and a processor
# that was idle is fast for some seconds.
WARM_UP_STEPS, WARM_UP_SHARE = 2, 0.1

# The clock is read after the device has finished. In between the device must not wait for the
# host, so steps are timed in intervals of several.
INTERVAL_SECONDS = 1.0

# A median and a spread need two.
MIN_INTERVALS = 2


@dataclass(frozen=True)
class Speed:
    """The durations of consecutive intervals of optimizer steps, on the clock of the first rank."""

    steps: tuple[int, ...]  # per interval
    seconds: tuple[float, ...]  # per interval
    uncounted_steps: int  # before them
    blocks: float  # that ran in a micro-batch, on average

    @property
    def seconds_per_step(self) -> float:
        """Return the mean, from which the time of a run follows: layer drop makes steps unequal."""
        return sum(self.seconds) / sum(self.steps)

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """Return the quartiles of the seconds per step over the intervals."""
        means = [total / steps for total, steps in zip(self.seconds, self.steps, strict=True)]
        low, median, high = statistics.quantiles(means, n=4, method="inclusive")
        return low, median, high


class MeasuredSteps:
    """Optimizer steps of a recipe at one keep ratio; every rank must take the same ones."""

    def __init__(
        self, engine: Engine, batches: Iterator[MaskedBatch], settings: RunSettings, theta: float
    ) -> None:
        """Prepare the first step.

        Args:
            engine: of the run; its weights stay as they are.
            batches: as training takes them, without end.
            settings: of the run.
            theta: keep ratio of the last block, at which the coins of layer drop are tossed.
        """
        self.engine, self.batches = engine, batches
        self.settings = _settings_to_measure(settings, theta)
        self.progress = Progress(self.settings, engine.ranks.world_size)

    @property
    def mean_blocks(self) -> float:
        """Return how many blocks ran in a micro-batch, on average, since `restart_counters`."""
        counters = self.progress.counters
        return sum(counters.kept_since_log) / counters.micro_batches_since_log

    def take_one(self) -> None:
        """Take the next step, without waiting for the device."""
        plan = self.progress.next_plan()
        result = self.engine.train_step(plan.micro_batches(self.batches), plan.learning_rate)
        self.progress.add_step(plan, result)

    def timed(self, count: int) -> float:
        """Take so many steps and return the seconds, the same number on all ranks."""
        begin = time.perf_counter()
        for _ in range(count):
            self.take_one()
        self.engine.synchronize()
        seconds = time.perf_counter() - begin
        return on_first_rank(self.engine.ranks, lambda: seconds)

    def restart_counters(self) -> None:
        """Reset the counters; the numbers of the steps continue."""
        progress = Progress(self.settings, self.engine.ranks.world_size)
        progress.counters.step = self.progress.step
        self.progress = progress

    def metrics(self, count: int, rate: PeakFlops) -> dict[str, Any]:
        """Take `count` steps and return their metrics, as training logs them."""
        self.restart_counters()
        self.engine.synchronize()
        self.engine.pop_costs()
        seconds = self.timed(count)
        progress = self.progress
        progress.add_seconds(seconds, self.engine.pop_costs())
        progress.fetch_losses(self.engine.mean_over_ranks)
        memory = peak_memory_bytes(self.engine.ranks.device)
        return progress.take_metrics(progress.schedule.plan(progress.step), rate, memory)


def measure_speed(steps: MeasuredSteps, seconds: float) -> Speed:
    """Take optimizer steps for about so many seconds, after a warm-up that is not counted."""
    spent = 0.0
    while steps.progress.step < WARM_UP_STEPS or spent < WARM_UP_SHARE * seconds:
        latest = steps.timed(1)
        spent += latest
    steps.restart_counters()
    uncounted = steps.progress.step
    counts: list[int] = []
    durations: list[float] = []
    while len(counts) < MIN_INTERVALS or sum(durations) < seconds:
        counts.append(max(1, round(INTERVAL_SECONDS / latest)))
        durations.append(steps.timed(counts[-1]))
        latest = durations[-1] / counts[-1]
    return Speed(tuple(counts), tuple(durations), uncounted, steps.mean_blocks)


def endless_batches(
    settings: RunSettings, shards: ShardSet | None, ranks: Ranks
) -> Iterator[MaskedBatch]:
    """Return micro-batches as training takes them; random ids where there are no shards."""
    place = Place(micro_sequences(settings, ranks.world_size), ranks.rank, ranks.world_size)
    return batches_from(
        RandomBatches(settings, place.micro_sequences)
        if shards is None
        else TrainingBatches(shards, settings, place),
        0,
        None,
        workers=settings.data.loader_workers,
        pin_memory=ranks.device == "cuda",
    )


class RandomBatches(Dataset[MaskedBatch]):
    """Micro-batches of random ids, of the shape of real ones, where there are no shards yet."""

    def __init__(self, settings: RunSettings, micro_sequences: int) -> None:
        self.shape = (micro_sequences, settings.data.sequence_length)
        self.vocabulary_size = settings.model.vocabulary_size
        self.per_row = predictions_per_row(self.shape[1], settings.data.masked_probability)

    def __getitem__(self, index: int) -> MaskedBatch:
        """Return random ids, of which as many are predicted in each row as of a real one."""
        generator = torch.Generator().manual_seed(index)
        ids = torch.randint(self.vocabulary_size, self.shape, generator=generator)
        columns = torch.rand(self.shape, generator=generator).argsort(dim=1)[:, : self.per_row]
        row_starts = torch.arange(self.shape[0])[:, None] * self.shape[1]
        positions = (columns.sort(dim=1).values + row_starts).flatten()
        return MaskedBatch(ids, positions, ids.flatten()[positions])


def _settings_to_measure(settings: RunSettings, theta: float) -> RunSettings:
    """Return settings whose steps all have this theta and learning rate 0, without an end."""
    drop = at_constant_theta(settings.layer_drop, theta)
    rate = settings.learning_rate.model_copy(update={"peak": 0.0})
    return settings.model_copy(update={"hours": None, "layer_drop": drop, "learning_rate": rate})
