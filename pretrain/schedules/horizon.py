"""Where in its schedule a step stands, and where the run ends: after its steps, or after its hours.

Learning rate and layer drop are functions of a position that goes from 0 to `steps`. In a run of a
given number of steps it is the number of the step. How many steps fit into `hours` is not known
before they are over: there the position moves by as much per step as makes it arrive when the time
is up. What is left of the schedule is spread evenly over the steps that are likely left, and
spread anew whenever somebody looks at the clock. So the curve is continuous and monotonic, a
machine that becomes slower or faster is followed, and `steps` is only the unit in which a decay is
stated.

Between two looks at the clock nothing depends on it. What was found is part of a checkpoint, and
with it every position is a function of the step.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

SECONDS_PER_HOUR = 3600

# The measured speed forgets half of what it was told in so many steps: a pause in one step, such
# as Python's collector makes, does not count for all that follow, and a new speed soon does.
HALF_LIFE_STEPS = 25


@dataclass
class ScheduleSegment:
    """Steps over which the position grows evenly, and the speed that they were laid out by."""

    first_step: int = 0
    position: float = 0.0  # of the first step
    stride: float = 0.0  # from one step to the next
    end_step: int | None = None  # where the schedule is over; None: no speed is known yet
    measured_steps: float = 0.0  # fading
    measured_seconds: float = 0.0  # of these steps


class Horizon:
    """The position of every step, for a run of `steps`, or of `hours` if they are not None.

    All ranks must be told the same seconds: the end, and what each step computes, depend on them.
    """

    def __init__(self, steps: int, hours: float | None) -> None:
        self.steps = steps
        self.seconds = None if hours is None else hours * SECONDS_PER_HOUR
        self.stretch = (
            ScheduleSegment(stride=1.0, end_step=steps) if hours is None else ScheduleSegment()
        )
        self._looked: tuple[int, float] | None = None  # step and seconds, in this launch

    @property
    def stride(self) -> float:
        """Return by how much each of the next steps moves the position."""
        return self.stretch.stride

    def position(self, step: int) -> float:
        """Return where step `step`, counted from 0, stands in the schedule, from 0 to `steps`."""
        return self.stretch.position + (step - self.stretch.first_step) * self.stretch.stride

    def is_end(self, step: int) -> bool:
        """Return whether the run is over after `step` steps."""
        return step == self.stretch.end_step

    def is_due(self, step: int) -> bool:
        """Return whether `renew` must be called after `step` steps.

        The gaps double from the first step on, and halve towards the end, down to one step: the
        time that is left over there is less than a step.
        """
        if self.seconds is None:
            return False
        first, end = self.stretch.first_step, self.stretch.end_step
        gap = first if end is None else min(first, (end - first) // 2)
        return step - first >= max(1, gap)

    def renew(self, step: int, seconds: float) -> None:
        """Spread what is left of the schedule over the time that is left.

        Where a launch looks at the clock for the first time, it learns no speed: the first steps
        compile and allocate. Before any speed is known, the position stands still.

        Args:
            step: number of finished steps.
            seconds: that they took, in all launches, counted like `hours`.
        """
        stretch = self.stretch
        if self._looked is not None:
            self._measure(step - self._looked[0], seconds - self._looked[1])
        self._looked = step, seconds
        if self.is_end(step):
            return
        left = self._steps_left(seconds)
        if left == 0:
            stretch.end_step = step  # and the last step stays where it stood
            return
        stretch.position, stretch.first_step = self.position(step), step
        if left is not None:
            stretch.stride = (self.steps - stretch.position) / left
            stretch.end_step = step + left

    def load(self, stretch: ScheduleSegment) -> None:
        """Go on where the run that gave this stood."""
        self.stretch = stretch

    def state(self) -> dict[str, Any]:
        """Return what `load` reads."""
        return dataclasses.asdict(self.stretch)

    def _measure(self, steps: int, seconds: float) -> None:
        kept = 0.5 ** (steps / HALF_LIFE_STEPS)
        self.stretch.measured_steps = kept * self.stretch.measured_steps + steps
        self.stretch.measured_seconds = kept * self.stretch.measured_seconds + seconds

    def _steps_left(self, seconds: float) -> int | None:
        assert self.seconds is not None
        left = self.seconds - seconds
        if left <= 0:
            return 0
        if self.stretch.measured_steps == 0:
            return None
        return round(left * self.stretch.measured_steps / self.stretch.measured_seconds)
