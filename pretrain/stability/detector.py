"""Detects NaN, overflow streaks and loss spikes; decides whether to record, stop or rewind.

A loss or a gradient is not finite. Or fp16 steps overflow in a row: single overflows are how the
loss scale is found, in a streak no step is taken any more and DeepSpeed halves the scale until it
fails. Or the loss spikes, and recovers late or never; PaLM (Chowdhery et al. 2022, Sec. 5.1) was
then restarted from a checkpoint without the batches around the spike.

Steps are numbered as in metrics.jsonl: the first is 1, and `step_00000010` is written after step
10. Everything is a function of numbers that are equal on all ranks, so all ranks decide alike.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pretrain.config.settings import TroubleSettings

Kind = Literal["not finite", "overflow streak", "spike"]
Action = Literal["record", "stop", "rewind"]

SPIKE_WINDOW = 100  # losses whose median a spike is compared with
LEAST_LOSSES = 50  # before that the loss falls fast, and the median lags

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
    overflows: int = 0  # in a row
    is_spiking: bool = False  # a spike is reported once, until the loss has recovered


class AnomalyDetector:
    """Checks the numbers of each step, in order."""

    def __init__(self, settings: TroubleSettings, *, smallest_scale: float | None = None) -> None:
        """Start without previous losses.

        Args:
            settings: thresholds.
            smallest_scale: minimum of the loss scale; None if it is constant.
        """
        self.settings, self.smallest_scale = settings, smallest_scale
        self.state = WatchState()

    def check(self, numbers: StepNumbers) -> Anomaly | None:
        """Return the anomaly of this step, if any."""
        state, step = self.state, numbers.step
        state.overflows = state.overflows + 1 if numbers.overflowed else 0
        if numbers.not_finite_losses:
            count = numbers.not_finite_losses
            reason = f"the loss of {count} micro-batch{'es' * (count > 1)} was not finite"
            return Anomaly("not finite", step, step, reason)
        if numbers.not_finite_gradient:
            reason = "the loss was finite, its gradient was not"
            return Anomaly("not finite", step, step, reason)
        streak = self._streak(numbers)
        return streak if streak is not None else self._spike(numbers)

    def _streak(self, numbers: StepNumbers) -> Anomaly | None:
        overflows, scale = self.state.overflows, numbers.loss_scale
        if not overflows:
            return None
        is_low = self.smallest_scale is not None and scale <= SCALE_MARGIN * self.smallest_scale
        if overflows < self.settings.overflow_streak and not is_low:
            return None
        reason = f"{overflows} fp16 steps in a row overflowed, the loss scale is down to {scale:g}"
        return Anomaly("overflow streak", numbers.step - overflows + 1, numbers.step, reason)

    def _spike(self, numbers: StepNumbers) -> Anomaly | None:
        state, factor = self.state, self.settings.spike_factor
        losses, was_spiking = state.losses, state.is_spiking
        median = statistics.median(losses) if len(losses) >= LEAST_LOSSES else None
        state.is_spiking = median is not None and numbers.loss > factor * median
        state.losses = [*losses[1 - SPIKE_WINDOW :], numbers.loss]
        if not state.is_spiking or was_spiking:
            return None
        reason = (
            f"the loss was {numbers.loss:.4f}, more than {factor:g} times {median:.4f}, the median "
            f"of the {len(losses)} before"
        )
        # The loss is that of the weights before the step: the previous update can be the cause.
        return Anomaly("spike", numbers.step - 1, numbers.step, reason)


@dataclass(frozen=True)
class Decision:
    """The response to an anomaly; one line of decisions.jsonl."""

    action: Action
    kind: Kind
    first_step: int  # first and last step whose rows a rewound run leaves out
    step: int  # the step of the anomaly
    checkpoint_step: int | None  # of a rewind

    @property
    def steps(self) -> range:
        """Return the steps whose rows a rewind leaves out."""
        return range(self.first_step, self.step + 1)


def excluded_steps(decisions: Sequence[Decision]) -> set[int]:
    """Return the steps whose rows this run leaves out."""
    return {step for one in decisions if one.action == "rewind" for step in one.steps}


def policy_setting(kind: Kind) -> Literal["on_spike", "on_not_finite"]:
    """Return the setting under `trouble` that decides about a kind of anomaly."""
    return "on_spike" if kind == "spike" else "on_not_finite"


def wanted_action(kind: Kind, settings: TroubleSettings) -> Action:
    """Return the value of that setting."""
    return settings.on_spike if kind == "spike" else settings.on_not_finite


def decide(
    anomaly: Anomaly, settings: TroubleSettings, decisions: Sequence[Decision], checkpoint_step: int
) -> tuple[Decision, str]:
    """Return the response to an anomaly, and its reason in a few words.

    A run that was rewound to the same checkpoint `max_rewinds` times stops: the rows are not the
    cause.

    Args:
        anomaly: of the current step.
        settings: the policy.
        decisions: all earlier ones, oldest first.
        checkpoint_step: of the newest checkpoint, the target of a rewind; 0 without one.
    """
    wanted = wanted_action(anomaly.kind, settings)
    first = max(checkpoint_step + 1, anomaly.first_step - settings.skip_steps + 1)
    before = [
        one
        for one in decisions
        if one.action == "rewind" and one.checkpoint_step == checkpoint_step
    ]
    if wanted == "rewind" and len(before) >= settings.max_rewinds:
        rows = ", ".join(_span(one.steps) for one in before)
        decision = Decision("stop", anomaly.kind, first, anomaly.step, checkpoint_step)
        return decision, f"it persisted although the rows of steps {rows} were left out"
    decision = Decision(wanted, anomaly.kind, first, anomaly.step, checkpoint_step)
    return decision, f"trouble.{policy_setting(anomaly.kind)}"


def pending_rewinds(
    decisions: Sequence[Decision], settings: TroubleSettings, resumed_step: int
) -> list[Decision]:
    """Return a rewind for each stop of a run that is resumed with a policy to rewind.

    Args:
        decisions: of the run so far.
        settings: of this launch.
        resumed_step: of the checkpoint that the run resumes from.
    """
    excluded = excluded_steps(decisions)
    rewinds = []
    for one in decisions:
        is_open = one.action == "stop" and one.step > resumed_step and one.step not in excluded
        if is_open and wanted_action(one.kind, settings) == "rewind":
            rewinds.append(Decision("rewind", one.kind, one.first_step, one.step, resumed_step))
    return rewinds


def _span(steps: range) -> str:
    return str(steps[0]) if len(steps) == 1 else f"{steps[0]} to {steps[-1]}"
