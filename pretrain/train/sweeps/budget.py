"""Equal cost: the length of every arm, from a budget of tokens or FLOPs.

The FLOPs of an arm with layer drop are expected ones, by the keep probabilities: equal for all
seeds. What ran, by the drop masks of a run, is a little more or less.
"""

import math
from typing import NamedTuple

from data_prep.files.quoting import quoted
from pretrain.config.errors import ConfigError
from pretrain.config.settings import RunSettings

UNITS = ("tokens", "flops")
USAGE = "give tokens or flops, and an amount if not the baseline's: flops=2e13; or --steps, --hours"


class Budget(NamedTuple):
    """What each run may cost."""

    unit: str  # one of `UNITS`
    amount: float | None  # of each run; None: that of the baseline


def read_budget(text: str, place: str) -> Budget:
    """Read "flops" or "flops=2e13".

    Raises:
        ConfigError: it is neither; it begins with `place`.
    """
    unit, has_amount, number = text.partition("=")
    try:
        amount = float(number) if has_amount else None
    except ValueError:
        amount = math.nan
    if unit not in UNITS or (amount is not None and not 0 < amount < math.inf):
        raise ConfigError(f"{place} {quoted(text)}: {USAGE}")
    return Budget(unit, amount)


def lengths(budget: Budget, settings: RunSettings, baseline: RunSettings) -> dict[str, str]:
    """Return what must be changed, by name, for a run that costs what the budget allows.

    The schedule spans the new length. Values are as the command line takes them.

    Raises:
        ConfigError: the length is given in another way already.
    """
    if settings.hours:
        raise ConfigError(
            f"{settings.name}: a budget of {budget.unit} sets the steps, and hours="
            f"{settings.hours} does not go with it; set it to none"
        )
    if budget.unit == "flops":
        steps = _steps_of_flops(settings, budget.amount or expected_flops(baseline))
    else:
        per_step, of_baseline = (
            one.batch.global_sequences * one.data.sequence_length for one in (settings, baseline)
        )
        steps = max(1, round((budget.amount or float(baseline.steps * of_baseline)) / per_step))
    return _of_steps(settings, steps)


def fitted(settings: RunSettings, steps: int) -> dict[str, int | float]:
    """Return what must be changed, by name, for a schedule of the same shape over `steps`.

    Warm-up and the default of `layer_drop.gamma` are shares of the steps already.
    """
    changes: dict[str, int | float] = {"steps": steps}
    rate, gamma = settings.learning_rate, settings.layer_drop.gamma
    if rate.decay_steps is not None:
        # A run so short that all of it is warm-up has no decay to scale.
        after_warmup = [max(1, n - round(rate.warmup_ratio * n)) for n in (steps, settings.steps)]
        scaled = rate.decay_steps * after_warmup[0] / after_warmup[1]
        changes["learning_rate.decay_steps"] = max(1, round(scaled))
    if isinstance(gamma, float):
        changes["layer_drop.gamma"] = gamma * settings.steps / steps
    return changes


def shortened(settings: RunSettings, share: float) -> dict[str, str]:
    """Return what must be changed for a run of a share of the length, annealed to its end."""
    if settings.hours is not None:
        return {"hours": repr(settings.hours * share)}
    return _of_steps(settings, max(1, round(settings.steps * share)))


def expected_flops(settings: RunSettings) -> float:
    """Return the FLOPs of a whole run of given steps on one rank, by the keep probabilities.

    With `batch.micro_sequences` auto it is that of one pass a step.
    """
    from pretrain.train.recording.progress import Progress  # imports torch

    progress = Progress(settings, 1)
    return progress.mean_pass_flops() * progress.micro_batches_per_step * settings.steps


def _of_steps(settings: RunSettings, steps: int) -> dict[str, str]:
    return {name: repr(value) for name, value in fitted(settings, steps).items()}


def _steps_of_flops(settings: RunSettings, amount: float) -> int:
    """Return the steps nearest to an amount of FLOPs, which ascend with the steps.

    The mean FLOPs of a step hardly depend on the number of steps, since layer drop follows the
    share of them that is done, so that dividing by it soon finds the place.
    """
    steps = settings.steps

    def flops(steps: int) -> float:
        changes: dict[str, object] = {"steps": steps}
        gamma = fitted(settings, steps).get("layer_drop.gamma")
        if gamma is not None:  # its own speed is stated in steps
            changes["layer_drop"] = settings.layer_drop.model_copy(update={"gamma": gamma})
        return expected_flops(settings.model_copy(update=changes))

    for _ in range(20):
        nearest = max(1, round(amount * steps / flops(steps)))
        if nearest == steps:
            break
        steps = nearest
    around = [number for number in (steps - 1, steps, steps + 1) if number > 0]
    return min(around, key=lambda number: abs(flops(number) - amount))
