"""The counters of a run, which are logged and saved with each checkpoint."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from pydantic import TypeAdapter
from torch import Tensor

from pretrain.config.settings import RunSettings
from pretrain.data.batches import predictions_per_batch
from pretrain.distributed.hardware import PeakFlops
from pretrain.engine.engine import StepResult
from pretrain.model.cost import training_cost
from pretrain.model.objectives.held_out import Evaluation
from pretrain.schedules.horizon import ScheduleSegment
from pretrain.schedules.layer_drop import keep_probabilities
from pretrain.schedules.step_plan import Schedule, StepPlan, thetas_of_run
from pretrain.train.stability.detector import WatchState


@dataclass
class Counters:
    """The state of a resumed run besides weights and optimizer; the fields of a checkpoint."""

    step: int = 0  # number of finished steps: the last one, counted from 1
    training_seconds: float = 0.0  # without evaluation and checkpoints
    flops: float = 0.0  # of the blocks that ran
    expected_flops: float = 0.0  # by the keep probabilities
    full_depth_flops: float = 0.0  # had every block run
    skipped_steps: int = 0  # from ZeRO stage 1 on: fp16 overflows, gradients not finite
    left_out_steps: int = 0  # whose sequences are left out after an anomaly
    held_out_losses: list[float] = field(default_factory=list)
    # Of the last step that was taken and not left out:
    theta: float = 1.0
    loss_scale: float = 1.0
    gradient_norm: float | None = None
    # Since the last line of metrics:
    losses: list[float] = field(default_factory=list)
    parts_since_log: dict[str, list[float]] = field(default_factory=dict)  # total, number per rank
    seconds_since_log: float = 0.0
    waited_seconds_since_log: float | None = None  # of these, for a processor
    flops_since_log: float = 0.0
    steps_since_log: int = 0
    micro_batches_since_log: int = 0  # of a rank; their number per step depends on that of ranks
    kept_since_log: list[float] = field(default_factory=list)  # per block


class Progress:
    """Counts steps, time and FLOPs, and turns them into lines of metrics.

    Losses and the norm of the gradient stay on the device until `fetch_losses`, so that no step
    waits for it.
    """

    def __init__(self, settings: RunSettings, world_size: int) -> None:
        self.settings, self.world_size = settings, world_size
        self.counters = Counters(kept_since_log=[0] * settings.model.num_layers)
        self.schedule = Schedule(settings, world_size)
        self.watch = WatchState()
        self.micro_batches_per_step = self.schedule.micro_batches_per_step
        self.tokens_per_step = settings.batch.global_sequences * settings.data.sequence_length
        self._cost = training_cost(
            settings.model, settings.data.sequence_length, settings.objective, settings.electra
        )
        self._unfetched: list[Tensor] = []
        self._unfetched_norm: Any = None
        self._unfetched_parts: dict[str, Tensor] = {}  # [2] each: total, number

    @property
    def step(self) -> int:
        """Return the number of finished optimizer steps."""
        return self.counters.step

    def load(self, state: dict[str, Any]) -> None:
        """Continue with the counters and the horizon of a checkpoint, as `state` gave them."""
        self.counters = TypeAdapter(Counters).validate_python(state)
        segment = TypeAdapter(ScheduleSegment).validate_python(state["horizon"])
        self.schedule.horizon.load(segment)
        self.watch = TypeAdapter(WatchState).validate_python(state.get("watch", {}))

    def state(self) -> dict[str, Any]:
        """Return what `load` reads."""
        return {
            **dataclasses.asdict(self.counters),
            "horizon": dataclasses.asdict(self.schedule.horizon.segment),
            "watch": dataclasses.asdict(self.watch),
        }

    def next_plan(self) -> StepPlan:
        """Return the plan of the step that is to be taken now."""
        return self.schedule.plan(self.step + 1)

    def add_step(self, plan: StepPlan, result: StepResult) -> None:
        """Count an optimizer step that was taken."""
        counters, num_layers = self.counters, self.settings.model.num_layers
        counters.theta, counters.loss_scale = plan.theta, result.loss_scale
        expected = self._kept(plan.theta)
        for micro_batch in plan.branch_scales:
            kept = [scale != 0 for scale in micro_batch]
            counters.kept_since_log = [
                total + ran for total, ran in zip(counters.kept_since_log, kept, strict=True)
            ]
            flops = self.pass_flops(kept)
            counters.flops += flops
            counters.flops_since_log += flops
            counters.expected_flops += self.pass_flops(expected)
            counters.full_depth_flops += self.pass_flops([1] * num_layers)
        counters.skipped_steps += result.skipped
        counters.step = plan.step
        counters.steps_since_log += 1
        counters.micro_batches_since_log += len(plan.branch_scales)
        self._unfetched.append(result.losses.mean())
        self._unfetched_norm = result.gradient_norm
        for name, sums in result.parts.items():
            self._unfetched_parts[name] = self._unfetched_parts.get(name, 0) + sums

    def add_seconds(self, seconds: float, waited: float | None = None) -> None:
        """Add time spent in training steps.

        Args:
            seconds: of these steps.
            waited: seconds in which this process waited for a processor; None: not known.
        """
        counters = self.counters
        counters.training_seconds += seconds
        counters.seconds_since_log += seconds
        if waited is not None:
            counters.waited_seconds_since_log = (counters.waited_seconds_since_log or 0.0) + waited

    def fetch_losses(self, mean_over_ranks: Callable[[Tensor], list[float]]) -> None:
        """Copy the losses of the last steps to the host; every rank must call it."""
        if not self._unfetched:
            return
        self.counters.losses += mean_over_ranks(torch.stack(self._unfetched))
        norm = self._unfetched_norm
        self.counters.gradient_norm = None if norm is None else float(norm)
        parts, totals = self._unfetched_parts, self.counters.parts_since_log
        if parts:
            numbers = iter(mean_over_ranks(torch.cat(list(parts.values()))))
            for name, total, number in zip(parts, numbers, numbers, strict=True):
                before = totals.get(name, [0.0, 0.0])
                totals[name] = [before[0] + total, before[1] + number]
        self._unfetched, self._unfetched_norm, self._unfetched_parts = [], None, {}

    def take_metrics(
        self, plan: StepPlan, rate: PeakFlops, peak_memory_bytes: int
    ) -> dict[str, Any]:
        """Return a line of metrics (means since the last one, and totals), and begin the next.

        `plan` is of the last step, taken or left out; utilisation refers to the `rate` of the
        device of one rank.
        """
        counters = self.counters
        sums = counters.parts_since_log.items()
        parts = {name: total / number if number else 0.0 for name, (total, number) in sums}
        metrics = {
            **self._totals(),
            "expected_flops": counters.expected_flops,
            "full_depth_flops": counters.full_depth_flops,
            "loss": sum(counters.losses) / len(counters.losses),
            **({"parts": parts} if parts else {}),
            "learning_rate": plan.learning_rate,
            "gradient_norm": counters.gradient_norm,
            **self._speed(rate),
            "peak_memory_bytes": peak_memory_bytes,
            "theta": counters.theta,
            "keep_rates": [
                kept / counters.micro_batches_since_log for kept in counters.kept_since_log
            ],
            "skipped_steps": counters.skipped_steps,
            "left_out_steps": counters.left_out_steps,
            "loss_scale": counters.loss_scale,
        }
        counters.losses, counters.parts_since_log = [], {}
        counters.seconds_since_log, counters.steps_since_log = 0.0, 0
        counters.waited_seconds_since_log, counters.flops_since_log = None, 0.0
        counters.micro_batches_since_log = 0
        counters.kept_since_log = [0] * len(counters.kept_since_log)
        return metrics

    def take_evaluation(self, found: Evaluation) -> dict[str, Any]:
        """Return a line for evals.jsonl."""
        self.counters.held_out_losses.append(found.loss)
        line = {**self._totals(), "loss": found.loss, "predictions": found.num_predictions}
        return {**line, "parts": found.parts} if found.parts else line

    def result(self) -> dict[str, Any]:
        """Return the totals of a finished run."""
        counters = self.counters
        return {
            **self._totals(),
            "expected_flops": counters.expected_flops,
            "full_depth_flops": counters.full_depth_flops,
            "held_out_loss": counters.held_out_losses[-1],
        }

    def describe(self) -> str:
        """Return the result in one line."""
        minutes, seconds = divmod(round(self.counters.training_seconds), 60)
        return (
            f"{self.step:,} steps, {self.step * self.tokens_per_step:,} tokens, {minutes} min "
            f"{seconds} s of training, held-out loss {self.counters.held_out_losses[-1]:.4f}"
        )

    def pass_flops(self, kept: Sequence[float]) -> float:
        """Return the FLOPs of one micro-batch on all ranks; see `TrainingCost.of_pass`."""
        settings = self.settings
        shares = self.micro_batches_per_step
        return self._cost.of_pass(
            rows=settings.batch.global_sequences / shares,
            predictions=predictions_per_batch(settings) / shares,
            kept=kept,
            ranks=self.world_size,
        )

    def mean_pass_flops(self) -> float:
        """Return the expected FLOPs of one micro-batch on all ranks, over all steps of the run."""
        thetas = thetas_of_run(self.settings)
        flops = [n * self.pass_flops(self._kept(theta)) for theta, n in thetas.items()]
        return math.fsum(flops) / thetas.total()

    def _kept(self, theta: float) -> list[float]:
        """Return the probability of each block to run."""
        settings = self.settings
        return keep_probabilities(theta, settings.model.num_layers, settings.layer_drop)

    def _speed(self, rate: PeakFlops) -> dict[str, Any]:
        """Return speed, utilisation and waiting, of the first rank, since the last line."""
        counters, seconds = self.counters, self.counters.seconds_since_log
        steps, samples = counters.steps_since_log, self.settings.batch.global_sequences
        reachable = rate.flops_per_second * self.world_size
        return {
            "tokens_per_second": steps * self.tokens_per_step / seconds,
            "samples_per_second": steps * samples / seconds,
            "model_flops_utilisation": counters.flops_since_log / seconds / reachable,
            "processor_wait_share": None
            if counters.waited_seconds_since_log is None
            else counters.waited_seconds_since_log / seconds,
        }

    def _totals(self) -> dict[str, Any]:
        """Return what is spent; steps that were left out count in `tokens`, not in `flops`."""
        return {
            "step": self.step,
            "tokens": self.step * self.tokens_per_step,
            "training_seconds": self.counters.training_seconds,
            "flops": self.counters.flops,
        }
