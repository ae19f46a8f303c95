"""Learning rate by position in the schedule, as pure functions: nothing to save or restore.

The position goes from 0 to the steps of the schedule. It is the number of finished optimizer
steps, unless the run has a time budget (horizon.py). Unlike in bing_bert, warm-up begins at
1/warmup_steps instead of 0, so that the first step has an effect. With a time budget the first two
steps of a warm-up, before the speed is known, have a rate of 0.
"""

import math
from collections.abc import Callable

from pretrain.config.errors import lookup
from pretrain.config.settings import LearningRateSettings

# Shape after warm-up: (steps since warm-up, steps from warm-up to the end, settings) -> factor.
Decay = Callable[[float, int, LearningRateSettings], float]


def _exponential(since: float, until_end: int, settings: LearningRateSettings) -> float:
    assert settings.decay_rate is not None and settings.decay_steps is not None
    return float(settings.decay_rate ** (since / settings.decay_steps))


DECAYS: dict[str, Decay] = {
    "warmup_linear": lambda since, until_end, _: 1 - since / until_end,  # TUPE Table 1
    # PLD Table 4; ends far above 0
    "warmup_linear_decay_exp": _exponential,
    "warmup_cosine": lambda since, until_end, _: 0.5 * (1 + math.cos(math.pi * since / until_end)),
    "warmup_constant": lambda *_: 1.0,
}


def learning_rate_at(
    position: float, settings: LearningRateSettings, total_steps: int, *, stride: float = 1.0
) -> float:
    """Return the learning rate of the optimizer step at `position` of `total_steps`.

    Linear warm-up over `warmup_ratio` of the steps, then the decay that `schedule` names.

    Args:
        position: where the step begins, from 0.
        settings: peak and shape.
        total_steps: where the schedule ends.
        stride: how far the step goes; warm-up gives it the rate of its end, decay of its beginning.

    Raises:
        ConfigError: `learning_rate.schedule` does not exist.
    """
    decay = lookup(DECAYS, settings.schedule, setting="learning_rate.schedule")
    warmup_steps = round(settings.warmup_ratio * total_steps)
    if position < warmup_steps:
        return settings.peak * min(position + stride, warmup_steps) / warmup_steps
    until_end = max(1, total_steps - warmup_steps)  # steps are measured beyond an end in warm-up
    return settings.peak * decay(position - warmup_steps, until_end, settings)
