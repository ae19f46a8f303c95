"""How long an optimizer step of a recipe takes on this machine: measured, not worked out.

The steps are those of training: same engine, same batches, same coins. Only the learning rate is
0, which costs the same and cannot make a run without warm-up diverge.
"""

import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import Dataset

from data_prep.masking import predictions_per_row
from data_prep.shards.format import ShardSet
from pretrain.config.ds_config import micro_batches_per_step, micro_sequences
from pretrain.config.settings import RunSettings
from pretrain.data.batches import MaskedBatch, Place, TrainingBatches, batches_from
from pretrain.data.shards import open_data, shards_folder
from pretrain.distributed.ranks import Ranks, on_first_rank
from pretrain.engine.engine import Engine
from pretrain.schedules.layer_drop import scales_of_step, theta_at

# Not counted: the first step compiles and allocates, the second may once more, and a processor
# that was idle is fast for some seconds.
WARM_UP_STEPS, WARM_UP_SHARE = 2, 0.1

# The clock is read after the device has finished. In between it must not wait for the host, so
# that steps are timed in stretches.
STRETCH_SECONDS = 1.0

# A median and a spread need two.
MIN_STRETCHES = 2

# theta varies over a hundredth of a run and slower: this many places give its mean to 1e-4.
PLACES_OF_MEAN = 10_000


@dataclass(frozen=True)
class Speed:
    """The durations of consecutive stretches of optimizer steps, on the clock of the first rank."""

    steps: tuple[int, ...]
    seconds: tuple[float, ...]  # per stretch
    uncounted_steps: int  # before them
    blocks: float  # that ran in a micro-batch, on average

    @property
    def seconds_per_step(self) -> float:
        """Return the mean, which a whole run takes: with layer drop the steps differ in length."""
        return sum(self.seconds) / sum(self.steps)

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """Return the quartiles of the seconds per step over the stretches."""
        means = [total / steps for total, steps in zip(self.seconds, self.steps, strict=True)]
        low, median, high = statistics.quantiles(means, n=4, method="inclusive")
        return low, median, high


def mean_theta(settings: RunSettings) -> float:
    """Return the mean keep ratio of the last block over the whole run.

    The expected number of blocks that run is linear in theta, so that the steps of a run take as
    long on average as steps at this theta.
    """
    spacing = settings.steps / PLACES_OF_MEAN
    return statistics.fmean(
        theta_at((place + 0.5) * spacing, settings.layer_drop, settings.steps)
        for place in range(PLACES_OF_MEAN)
    )


def measure_speed(
    engine: Engine,
    batches: Iterator[MaskedBatch],
    settings: RunSettings,
    *,
    theta: float,
    seconds: float,
) -> Speed:
    """Take optimizer steps for about so many seconds; every rank must call it.

    Args:
        engine: of the run; its weights stay as they are.
        batches: as training takes them, without end.
        settings: of the run.
        theta: keep ratio at which the coins of layer drop are tossed.
        seconds: to be measured, after those that are not counted.
    """
    steps = _Steps(engine, batches, settings, theta)
    spent = 0.0
    while steps.done < WARM_UP_STEPS or spent < WARM_UP_SHARE * seconds:
        latest = steps.take(1)
        spent += latest
    uncounted, steps.blocks = steps.done, 0
    counts: list[int] = []
    durations: list[float] = []
    while len(counts) < MIN_STRETCHES or sum(durations) < seconds:
        counts.append(max(1, round(STRETCH_SECONDS / latest)))
        durations.append(steps.take(counts[-1]))
        latest = durations[-1] / counts[-1]
    passes = sum(counts) * steps.micro_batches
    return Speed(tuple(counts), tuple(durations), uncounted, steps.blocks / passes)


def existing_shards(settings: RunSettings) -> ShardSet | None:
    """Open the shards of a run; None if they are still to be built.

    Raises:
        ConfigError: `data.shards` names a folder that is not there, or they do not fit the model.
        ShardError: they are damaged.
    """
    data = settings.data
    if data.shards is None and not (data.corpus and shards_folder(settings).is_dir()):
        return None
    return open_data(settings)


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
    """Micro-batches of the right shape that mean nothing, where there are no shards yet."""

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


class _Steps:
    """Takes optimizer steps, and counts them and the blocks that ran."""

    def __init__(
        self, engine: Engine, batches: Iterator[MaskedBatch], settings: RunSettings, theta: float
    ) -> None:
        self.engine, self.batches = engine, batches
        self.settings, self.theta = settings, theta
        self.micro_batches = micro_batches_per_step(settings, engine.ranks.world_size)
        self.done = self.blocks = 0

    def take(self, count: int) -> float:
        """Take so many steps and return the seconds, the same number on all ranks."""
        begin = time.perf_counter()
        for step in range(self.done, self.done + count):
            scales = scales_of_step(step, self.settings, theta=self.theta, count=self.micro_batches)
            self.blocks += sum(scale != 0 for micro_batch in scales for scale in micro_batch)
            micro_batches = zip(islice(self.batches, len(scales)), scales, strict=True)
            self.engine.train_step(micro_batches, learning_rate=0.0)
        self.engine.synchronize()
        self.done += count
        seconds = time.perf_counter() - begin
        return on_first_rank(self.engine.ranks, lambda: seconds)


SHOWN = 15


def trace(step: Callable[[], None], count: int, ranks: Ranks, file: Path) -> profile | None:
    """Take `count` steps, record every operator in them and write a Chrome trace.

    The first rank records, the others only take the steps, and get None.
    """
    if not ranks.is_first:
        for _ in range(count):
            step()
        return None
    # Else it writes a line to stderr when it starts and another when it stops.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    activities = [ProfilerActivity.CPU]
    if ranks.device == "cuda":
        activities.append(ProfilerActivity.CUDA)
    profiler = profile(activities=activities)
    with profiler:
        for _ in range(count):
            step()
    profiler.export_chrome_trace(str(file))
    return profiler


def costliest_operators(profiler: profile, steps: int) -> list[dict[str, Any]]:
    """Return the operators by the time spent in themselves, without what they call.

    Where a GPU was traced they are its kernels, and the time is the GPU's.
    """
    events = profiler.key_averages()
    kernels = [
        (kernel_name(event.key), event.count, event.self_device_time_total)
        for event in events
        if event.device_type == DeviceType.CUDA and not event.is_user_annotation
    ]
    operators = [
        (operator_name(event.key), event.count, event.self_cpu_time_total)
        for event in events
        if event.device_type == DeviceType.CPU
    ]
    return largest(kernels or operators, steps)


def largest(costs: Iterable[tuple[str, int, float]], steps: int) -> list[dict[str, Any]]:
    """Add up (name, calls, microseconds) by name and return the most expensive ones."""
    calls: dict[str, int] = defaultdict(int)
    microseconds: dict[str, float] = defaultdict(float)
    for name, count, cost in costs:
        calls[name] += count
        microseconds[name] += cost
    total = sum(microseconds.values())
    names = sorted(microseconds, key=lambda name: -microseconds[name])[:SHOWN]
    return [
        {
            "name": name,
            "calls_per_step": calls[name] / steps,
            "milliseconds": microseconds[name] / 1000 / steps,
            "share": microseconds[name] / total,
        }
        for name in names
    ]


def operator_name(key: str) -> str:
    """Return what an operator is listed under: in place or not, and autograd's nodes as one."""
    if key.startswith("phase/"):
        return f"{key}, outside of operators"  # Python, DeepSpeed, waiting for other ranks
    if key.startswith("autograd::") or key.endswith(("Backward", "Backward0", "Backward1")):
        return "autograd's nodes"
    return key.removesuffix("_") if key.startswith("aten::") else key


def kernel_name(key: str) -> str:
    """Return the name of a kernel without its template arguments and parameters."""
    return key.removeprefix("void ").partition("<")[0].partition("(")[0]
