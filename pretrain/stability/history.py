"""The numbers of the last steps, for the record of an anomaly.

A step costs one small copy: on CUDA its losses and gradient norm are copied to pinned host memory
asynchronously and read two steps later, so that neither host nor device waits. The rows of a batch
are not stored: they are a function of (seed, step), see data/batches.py.
"""

import math
from collections import deque
from dataclasses import dataclass
from typing import Any, Literal

import numpy
import torch
from torch import Tensor

from data_prep.shards.format import ShardSet
from pretrain.config.settings import RunSettings
from pretrain.data.batches import rows_of_samples
from pretrain.engine.engine import StepResult
from pretrain.schedules.step_plan import StepPlan, finished_before

KEPT_STEPS = 64

# Steps after which the numbers are read. With 2, the host waits only if it is more than a step
# ahead of the GPU.
READ_AFTER = {"cpu": 0, "cuda": 2}


@dataclass(frozen=True)
class StepStats:
    """The numbers of a step on one rank; steps are numbered from 1, as in metrics.jsonl."""

    step: int
    learning_rate: float
    theta: float
    kept_blocks: list[list[int]]  # of each micro-batch, counted from 0
    losses: list[float]  # one per micro-batch
    gradient_norm: float | None  # of all ranks together, before clipping
    skipped: bool  # without an update
    loss_scale: float

    @property
    def has_finite_gradient(self) -> bool:
        """Return False only if the norm is known and not finite."""
        return self.gradient_norm is None or math.isfinite(self.gradient_norm)


class StepHistory:
    """A ring of the last steps of this rank."""

    def __init__(self, device: Literal["cpu", "cuda"]) -> None:
        self._read_after = READ_AFTER[device]
        self._on_cuda = device == "cuda"
        self._stats: deque[StepStats] = deque(maxlen=KEPT_STEPS)
        self._plans: deque[StepPlan] = deque(maxlen=KEPT_STEPS)  # of the same steps
        self._unread: deque[_Unread] = deque()

    def add(self, plan: StepPlan, result: StepResult) -> None:
        """Keep a step."""
        numbers, arrived = self._on_host(_numbers(result))
        self._unread.append(_Unread(plan, result, numbers=numbers, arrived=arrived))

    def next_read(self, *, all_steps: bool = False) -> StepStats | None:
        """Return the oldest unread step if it is old enough, or in any case with `all_steps`.

        All ranks call it equally often, so that they read the same steps.
        """
        if len(self._unread) <= (0 if all_steps else self._read_after):
            return None
        unread = self._unread.popleft()
        stats = unread.read()
        self._stats.append(stats)
        self._plans.append(unread.plan)
        return stats

    def plan(self, step: int) -> StepPlan:
        """Return the plan of one of the steps in `steps`."""
        return next(plan for plan in self._plans if plan.step == step)

    @property
    def has_unread(self) -> bool:
        """Return whether steps were added that were not read yet."""
        return bool(self._unread)

    def steps(self) -> list[StepStats]:
        """Return the last steps that were read, oldest first."""
        return list(self._stats)

    def forget(self) -> None:
        """Forget all steps, for a rewind."""
        self._stats.clear()
        self._plans.clear()
        self._unread.clear()

    def _on_host(self, numbers: Tensor) -> tuple[Tensor, torch.cuda.Event | None]:
        if not self._on_cuda:
            return numbers, None
        pinned = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
        pinned.copy_(numbers, non_blocking=True)
        arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
        arrived.record()
        return pinned, arrived


@dataclass(frozen=True)
class _Unread:
    plan: StepPlan
    result: StepResult
    numbers: Tensor  # the losses, and the norm if it is a tensor
    arrived: torch.cuda.Event | None

    def read(self) -> StepStats:
        if self.arrived is not None:
            self.arrived.synchronize()
        numbers, norm = self.numbers.tolist(), self.result.gradient_norm
        if isinstance(norm, Tensor):
            norm = numbers.pop()
        scales = self.plan.branch_scales
        return StepStats(
            self.plan.step,
            self.plan.learning_rate,
            self.plan.theta,
            [[block for block, scale in enumerate(row) if scale != 0] for row in scales],
            numbers,
            norm,
            self.result.skipped,
            self.result.loss_scale,
        )


def _numbers(result: StepResult) -> Tensor:
    losses = result.losses.detach()
    if isinstance(result.gradient_norm, Tensor):
        norm = result.gradient_norm.detach().to(losses.device).reshape(1)
        return torch.cat([losses, norm.to(losses.dtype)])
    return losses


def rows_of_step(step: int, shards: ShardSet, settings: RunSettings) -> dict[str, Any]:
    """Return the rows of the shards in the batch of a step, on all ranks together.

    Returns:
        "samples": the first and the last global sample number; and lists in the order of the
        samples: "epoch", "row" (its number in the split), "file" of the shards and "row_in_file".
        Micro-batch i of rank r holds the (i x ranks + r)-th part of them.
    """
    split, size = shards.manifest.splits["train"], settings.batch.global_sequences
    samples = numpy.arange(finished_before(step) * size, step * size)
    by_epoch = rows_of_samples(samples, split.rows, settings.seed)
    rows = numpy.concatenate([numbers for _, numbers in by_epoch])
    files, rows_in_files = numpy.divmod(rows, split.rows_per_shard)
    return {
        "step": step,
        "samples": [int(samples[0]), int(samples[-1])],
        "epoch": [epoch for epoch, numbers in by_epoch for _ in numbers],
        "row": rows.tolist(),
        "file": [split.shards[file].file for file in files.tolist()],
        "row_in_file": rows_in_files.tolist(),
    }
