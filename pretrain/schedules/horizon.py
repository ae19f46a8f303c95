"""The place of a step in the schedule, and the end of the run: after its steps, or its hours.

Learning rate and layer drop are functions of a position that goes from 0 to `steps`. In a run of a
given number of steps it is the number of finished steps. How many steps fit into `hours` is not
known before the end: there the stride from step to step is chosen so that the schedule ends with
the time budget. The rest of the schedule is spread evenly over the estimated number of steps that
are left, and spread again at each reading of the clock. The position is therefore continuous and
monotonic in the step and follows changes of speed, and `steps` is only the unit of the decay.

Between two readings nothing depends on the clock. Their outcome is part of a checkpoint; given it,
every position is a function of the number of finished steps.

A run that is lengthened is planned as if it always had its new steps.
"""

from dataclasses import dataclass

SECONDS_PER_HOUR = 3600

# The weight of a step in the measured speed halves every so many steps: a pause in one step, such
# as Python's garbage collection, soon stops counting, and a new speed soon dominates.
HALF_LIFE_STEPS = 25


@dataclass
class ScheduleSegment:
    """Steps over which the position grows evenly, and the measured speed it was chosen by."""

    first_step: int = 0  # number of steps finished where it begins
    position: float = 0.0  # there
    stride: float = 0.0  # from one step to the next
    end_step: int | None = None  # number of finished steps at the end; None: speed not known yet
    measured_steps: float = 0.0  # decaying sum
    measured_seconds: float = 0.0  # of these steps


class Horizon:
    """The position of every step, for a run of `steps`, or of `hours` if they are not None.

    All ranks must pass the same seconds: the end, and what each step computes, depend on them.
    """

    def __init__(self, steps: int, hours: float | None) -> None:
        self.steps = steps
        self.seconds = None if hours is None else hours * SECONDS_PER_HOUR
        self.segment = (
            ScheduleSegment(stride=1.0, end_step=steps) if hours is None else ScheduleSegment()
        )
        self._last_reading: tuple[int, float] | None = None  # finished steps, seconds; this launch

    def position(self, finished: float) -> float:
        """Return the position in the schedule after `finished` steps, from 0 to `steps`."""
        segment = self.segment
        return segment.position + (finished - segment.first_step) * segment.stride

    def is_end(self, finished: int) -> bool:
        """Return whether the run is over after `finished` steps."""
        return finished == self.segment.end_step

    def is_due(self, finished: int) -> bool:
        """Return whether `renew` must be called after `finished` steps.

        The gaps double from the first step on, and halve towards the end, down to one step: the
        error of the end is then less than a step.
        """
        if self.seconds is None:
            return False
        first, end = self.segment.first_step, self.segment.end_step
        gap = first if end is None else min(first, (end - first) // 2)
        return finished - first >= max(1, gap)

    def renew(self, finished: int, seconds: float) -> None:
        """Spread the rest of the schedule over the time that is left.

        The first reading of a launch measures no speed: the first steps compile and allocate.
        Before any speed is known, the position does not move.

        Args:
            finished: number of finished steps.
            seconds: that they took, in all launches, counted like `hours`.
        """
        segment = self.segment
        if self._last_reading is not None:
            steps, passed = finished - self._last_reading[0], seconds - self._last_reading[1]
            kept = 0.5 ** (steps / HALF_LIFE_STEPS)
            segment.measured_steps = kept * segment.measured_steps + steps
            segment.measured_seconds = kept * segment.measured_seconds + passed
        self._last_reading = finished, seconds
        if self.is_end(finished):
            return
        left = self._steps_left(seconds)
        if left == 0:
            segment.end_step = finished  # the position of the last step stays what it was
            return
        segment.position, segment.first_step = self.position(finished), finished
        if left is not None:
            segment.stride = (self.steps - segment.position) / left
            segment.end_step = finished + left

    def load(self, segment: ScheduleSegment) -> None:
        """Continue from a saved segment; a run of given steps needs none, and may be longer now."""
        if self.seconds is not None:
            self.segment = segment

    def _steps_left(self, seconds: float) -> int | None:
        assert self.seconds is not None
        left = self.seconds - seconds
        if left <= 0:
            return 0
        if self.segment.measured_steps == 0:
            return None
        return round(left * self.segment.measured_steps / self.segment.measured_seconds)
