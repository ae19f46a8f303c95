"""Detects losses and gradients that are not finite, fp16 overflows in a row, and loss spikes.

Single overflows are how the loss scale is found; in a streak no step is taken any more, and
DeepSpeed halves the scale until it fails. A loss that spikes recovers late or never; PaLM
(Chowdhery et al. 2022, Sec. 5.1) was then restarted from a checkpoint without the batches around
the spike.

Steps are numbered as in metrics.jsonl: the first is 1, and `step_00000010` is written after step
10. Everything is a function of numbers that are equal on all ranks, so all ranks decide alike.
"""

import statistics
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pretrain.config.settings import TroubleSettings

Kind = Literal["not finite", "streak", "weights", "spike"]

SPIKE_FACTOR = 2  # a spike is a loss above this times the median
SPIKE_WINDOW = 100  # losses whose median a spike is compared with
LEAST_LOSSES = 50  # before that the loss falls fast, and the median lags

STREAK = 20  # steps in a row without an update
# An overflow at a loss scale within this factor of the minimum is a streak: DeepSpeed ends the run
# at the first overflow at the minimum, and the numbers of all ranks are up to three steps old.
SCALE_MARGIN = 16


class StepNumbers(NamedTuple):
    """Numbers of one step, reduced over all ranks."""

    step: int
    loss: float  # mean over micro-batches and ranks
    not_finite_losses: int  # number of micro-batches
    not_finite_gradient: bool  # False in fp16, where it is an overflow
    overflowed: bool
    loss_scale: float  # after the step


@dataclass(frozen=True)
class Anomaly:
    """An anomaly that was observed at `step`; its cause may be any step from `first_step` on."""

    kind: Kind
    first_step: int
    step: int
    reason: str


@dataclass
class WatchState:
    """The state of the detector, which is saved with every checkpoint."""

    losses: list[float] = field(default_factory=list)  # the last finite ones
    overflows: int = 0  # in a row, with those steps that `trouble.on_not_finite` skips
    is_spiking: bool = False  # a spike is reported once, until the loss has recovered


class AnomalyDetector:
    """Checks the numbers of each step, in order."""

    def __init__(self, settings: TroubleSettings, *, smallest_scale: float | None = None) -> None:
        """Start without previous losses; where the scale is constant, it has no smallest."""
        self.settings, self.smallest_scale = settings, smallest_scale
        self.state = WatchState()

    def check(self, numbers: StepNumbers) -> Anomaly | None:
        """Return the anomaly of this step, if any."""
        state, step, count = self.state, numbers.step, numbers.not_finite_losses
        is_finite = not count and not numbers.not_finite_gradient
        is_skipped = not is_finite and self.settings.on_not_finite == "skip"
        state.overflows = state.overflows + 1 if numbers.overflowed or is_skipped else 0
        if not is_finite and not (is_skipped and state.overflows >= STREAK):
            reason = "the loss was finite, its gradient was not"
            if count:
                reason = f"the loss of {count} micro-batch{'es' * (count > 1)} was not finite"
            return Anomaly("not finite", step, step, reason)
        return self._streak(numbers) or self._spike(numbers)

    def _streak(self, numbers: StepNumbers) -> Anomaly | None:
        count, scale = self.state.overflows, numbers.loss_scale
        is_low = self.smallest_scale is not None and scale <= SCALE_MARGIN * self.smallest_scale
        if count < STREAK and not (count and is_low):
            return None
        reason = f"{count} steps in a row had no update; the loss scale is {scale:g}"
        return Anomaly("streak", numbers.step - count + 1, numbers.step, reason)

    def _spike(self, numbers: StepNumbers) -> Anomaly | None:
        state = self.state
        losses, was_spiking = state.losses, state.is_spiking
        median = statistics.median(losses) if len(losses) >= LEAST_LOSSES else None
        state.is_spiking = median is not None and numbers.loss > SPIKE_FACTOR * median
        state.losses = [*losses[1 - SPIKE_WINDOW :], numbers.loss]
        if not state.is_spiking or was_spiking:
            return None
        reason = (
            f"the loss was {numbers.loss:.4f}, more than {SPIKE_FACTOR} times {median:.4f}, the "
            f"median of the {len(losses)} before"
        )
        # The loss is that of the weights before the step: the previous update can be the cause.
        return Anomaly("spike", numbers.step - 1, numbers.step, reason)
