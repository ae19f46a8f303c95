"""What counts as numerical trouble, and which steps are skipped for it; no files, no device.

Three things happen to long runs. A loss or a gradient is not finite. In fp16 one step after the
other overflows: single overflows are how the loss scale is found, but a row of them means that no
step is taken any more, while DeepSpeed halves the scale in silence until it cannot go on. Or the
loss jumps, and comes back late or never; PaLM (Chowdhery et al. 2022, Sec. 5.1) was then taken back
to a checkpoint and went on without the batches of the steps around the spike.

Steps are counted as in metrics.jsonl: step n is the n-th, and `step_00000010` stands behind it.
Everything here is a function of numbers that are equal on all ranks, so all of them decide alike.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from pretrain.config.settings import TroubleSettings

Kind = Literal["not finite", "overflow streak", "spike"]

HISTORY = 100  # losses whose median is the normal one
WARM = 50  # so many are needed: at the start the loss falls fast, and the median lags

# A loss scale so close to its floor is trouble: DeepSpeed ends the run, with a message about
# itself, at the first overflow on the floor, and what ranks know of each other is up to three
# steps old.
FLOOR_MARGIN = 16


class StepNumbers(NamedTuple):
    """What all ranks know of a step, once they have added up their numbers."""

    step: int
    loss: float  # mean over micro-batches and ranks
    not_finite_losses: int  # micro-batches
    not_finite_gradient: bool  # in fp16 that is an overflow instead
    overflowed: bool
    loss_scale: float  # after the step


@dataclass(frozen=True)
class Anomaly:
    """Something that showed at `step`; its cause may lie in any step from `first_step` on."""

    kind: Kind
    first_step: int
    step: int
    reason: str


@dataclass
class WatchState:
    """What the watch remembers, as it is saved with a checkpoint."""

    losses: list[float] = field(default_factory=list)  # the last ones that were finite
    overflows: int = 0  # in a row
    is_spiking: bool = False  # told once, until the loss has come back


class AnomalyDetector:
    """Looks at the numbers of one step after the other."""

    def __init__(self, settings: TroubleSettings, *, scale_floor: float | None = None) -> None:
        """Begin without a history.

        Args:
            settings: thresholds.
            scale_floor: smallest loss scale; None where it never changes.
        """
        self.settings, self.scale_floor = settings, scale_floor
        self.state = WatchState()

    def look(self, numbers: StepNumbers) -> Anomaly | None:
        """Return the trouble that shows at this step, if any."""
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
        is_low = self.scale_floor is not None and scale <= FLOOR_MARGIN * self.scale_floor
        if overflows < self.settings.overflow_streak and not is_low:
            return None
        reason = f"{overflows} fp16 steps in a row overflowed, the loss scale is down to {scale:g}"
        return Anomaly("overflow streak", numbers.step - overflows + 1, numbers.step, reason)

    def _spike(self, numbers: StepNumbers) -> Anomaly | None:
        state, factor = self.state, self.settings.spike_factor
        losses, was_spiking = state.losses, state.is_spiking
        median = statistics.median(losses) if len(losses) >= WARM else None
        state.is_spiking = median is not None and numbers.loss > factor * median
        state.losses = [*losses[1 - HISTORY :], numbers.loss]
        if not state.is_spiking or was_spiking:
            return None
        reason = (
            f"the loss was {numbers.loss:.4f}, more than {factor:g} times {median:.4f}, the median "
            f"of the {len(losses)} before"
        )
        # A loss belongs to the weights before its step: the update before can be the cause too.
        return Anomaly("spike", numbers.step - 1, numbers.step, reason)


@dataclass(frozen=True)
class Decision:
    """What was decided about a trouble; one line of decisions.jsonl."""

    action: Literal["record", "stop", "rewind"]
    kind: Kind
    first_step: int  # of the rows that a rewound run skips
    step: int  # and the last; the one with the trouble
    checkpoint_step: int | None  # that a rewound run went back to

    @property
    def steps(self) -> range:
        """Return the steps whose rows are skipped."""
        return range(self.first_step, self.step + 1)


def skipped_steps(decisions: Sequence[Decision]) -> set[int]:
    """Return the steps whose rows this run does not train on."""
    return {step for one in decisions if one.action == "rewind" for step in one.steps}


def decide(
    trouble: Anomaly, settings: TroubleSettings, decisions: Sequence[Decision], checkpoint_step: int
) -> tuple[Decision, str]:
    """Return what is done about a trouble, and why in a few words.

    A run that went back to the same checkpoint `max_rewinds` times stops: rows are not the cause.

    Args:
        trouble: at hand.
        settings: the policy.
        decisions: that were taken before, oldest first.
        checkpoint_step: the newest checkpoint; where a rewind would begin.
    """
    wanted = settings.on_spike if trouble.kind == "spike" else settings.on_not_finite
    first = max(checkpoint_step + 1, trouble.first_step - settings.skip_steps + 1)
    before = [
        one
        for one in decisions
        if one.action == "rewind" and one.checkpoint_step == checkpoint_step
    ]
    if wanted == "rewind" and len(before) >= settings.max_rewinds:
        rows = ", ".join(_span(one.steps) for one in before)
        decision = Decision("stop", trouble.kind, first, trouble.step, checkpoint_step)
        return decision, f"it went on although the rows of steps {rows} were skipped"
    decision = Decision(wanted, trouble.kind, first, trouble.step, checkpoint_step)
    return decision, f"trouble.{'on_spike' if trouble.kind == 'spike' else 'on_not_finite'}"


def pending_rewinds(
    decisions: Sequence[Decision], settings: TroubleSettings, resumed_step: int
) -> list[Decision]:
    """Return the rewinds that a resumed run owes, because it stopped and now shall rewind.

    Args:
        decisions: of the run so far.
        settings: of this launch.
        resumed_step: of the checkpoint that it begins at.
    """
    skipped = skipped_steps(decisions)
    owed = []
    for one in decisions:
        wanted = settings.on_spike if one.kind == "spike" else settings.on_not_finite
        is_open = one.action == "stop" and one.step > resumed_step and one.step not in skipped
        if is_open and wanted == "rewind":
            owed.append(Decision("rewind", one.kind, one.first_step, one.step, resumed_step))
    return owed


def as_line(decision: Decision) -> dict[str, Any]:
    """Return a decision as it is written."""
    return dict(vars(decision))


def _span(steps: range) -> str:
    return str(steps[0]) if len(steps) == 1 else f"{steps[0]} to {steps[-1]}"
