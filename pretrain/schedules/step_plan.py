"""The plan of an optimizer step: learning rate, layer drop, dropout seed; computed in one place.

Steps are counted from 1: step n is the n-th optimizer step, as in metrics.jsonl, and the checkpoint
`step_n` is written after it. Schedule, drop masks, dropout and samples are functions of the number
of steps that are finished before; `finished_before` is the one conversion between the two.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from pretrain.config.batch import micro_batches_per_step
from pretrain.config.settings import RunSettings
from pretrain.schedules.horizon import Horizon
from pretrain.schedules.layer_drop import scales_of_step, theta_at
from pretrain.schedules.learning_rate import learning_rate_at

Batch = TypeVar("Batch")

# theta varies over a hundredth of a run or more: this many samples give its mean to 1e-4.
MOST_SAMPLES = 10_000


def finished_before(step: int) -> int:
    """Return how many steps are finished when step `step` begins."""
    return step - 1


@dataclass(frozen=True)
class StepPlan:
    """What an optimizer step depends on besides weights and rows; equal on all ranks."""

    step: int  # from 1
    learning_rate: float
    theta: float  # keep ratio of the last block
    branch_scales: list[list[float]]  # of each micro-batch of a rank, one number per block
    seed: int  # of the run

    def micro_batches(self, batches: Iterator[Batch]) -> Iterator[tuple[Batch, list[float]]]:
        """Return the next micro-batches of a rank, each with its branch scales."""
        scales = self.branch_scales
        return zip(islice(batches, len(scales)), scales, strict=True)

    def dropout_seed(self, rank: int) -> int:
        """Return the seed of torch's generator, so that a resumed run needs no generator state."""
        # Odd 64-bit constants spread the three numbers; torch mixes the result further.
        return (
            self.seed * 0x9E3779B97F4A7C15
            + finished_before(self.step) * 0xBF58476D1CE4E5B9
            + rank * 0x94D049BB133111EB
        ) % 2**63


class Schedule:
    """The plans of all steps of a run. With a time budget they follow its `horizon`."""

    def __init__(self, settings: RunSettings, world_size: int) -> None:
        self.settings = settings
        self.horizon = Horizon(settings.steps, settings.hours)
        self.micro_batches_per_step = micro_batches_per_step(settings, world_size)

    def plan(self, step: int) -> StepPlan:
        """Return the plan of step `step`."""
        settings, finished = self.settings, finished_before(step)
        position, span = self.horizon.position(finished), settings.steps
        stride = self.horizon.segment.stride
        theta = theta_at(position, settings.layer_drop, span, stride=stride)
        return StepPlan(
            step=step,
            learning_rate=learning_rate_at(position, settings.learning_rate, span, stride=stride),
            theta=theta,
            branch_scales=scales_of_step(
                finished, settings, theta=theta, count=self.micro_batches_per_step
            ),
            seed=settings.seed,
        )


def thetas_of_run(settings: RunSettings) -> Counter[float]:
    """Return how often each theta occurs among the steps of a run.

    Those of every step, or of 10,000 evenly spaced positions where there are more steps; of a run
    of given hours, as if it had the steps of its settings.
    """
    steps = settings.steps
    places = [float(step) for step in range(min(steps, MOST_SAMPLES))]
    if steps > MOST_SAMPLES:
        places = [(number + 0.5) * steps / MOST_SAMPLES for number in range(MOST_SAMPLES)]
    return Counter(theta_at(place, settings.layer_drop, steps) for place in places)
