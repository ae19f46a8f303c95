"""Equal cost: the length of every arm, from a budget of steps, tokens, FLOPs or seconds.

The FLOPs of an arm with layer drop are expected ones, by the keep probabilities: equal for all
seeds. What ran, by the drop masks of a run, is a little more or less.
"""

import math
from dataclasses import dataclass

from data_prep.files.quoting import quoted
from pretrain.config.batch import micro_batches_per_step
from pretrain.config.errors import ConfigError
from pretrain.config.settings import RunSettings
from pretrain.schedules.fitting import fitted
from pretrain.schedules.horizon import SECONDS_PER_HOUR
from pretrain.schedules.layer_drop import kept_shares
from pretrain.schedules.run_thetas import thetas_of_run

UNITS = ("steps", "tokens", "flops", "seconds")
USAGE = "give steps, tokens, flops or seconds, and an amount if not the baseline's: flops=2e13"


@dataclass(frozen=True)
class Budget:
    """What each run may cost.

    Attributes:
        unit: one of `UNITS`.
        amount: of each run; None: that of the baseline.
    """

    unit: str
    amount: float | None

    def __str__(self) -> str:
        return self.unit if self.amount is None else f"{self.unit}={self.amount!r}"


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

    Args:
        budget: of each run.
        settings: of the arm.
        baseline: settings of the first arm.

    Raises:
        ConfigError: the length is given in another way already.
    """
    if budget.unit == "seconds":
        return {"hours": repr(_seconds(budget, baseline) / SECONDS_PER_HOUR)}
    for name, value in (("hours", settings.hours), ("restarts_after", settings.restarts_after)):
        if value:
            raise ConfigError(
                f"{settings.name}: a budget of {budget.unit} sets the steps, and {name}="
                f"{quoted(value)} does not go with it; set it to none"
            )
    changes = fitted(settings, _steps(budget, settings, baseline))
    return {name: repr(value) for name, value in changes.items()}


def expected_flops(settings: RunSettings) -> float:
    """Return the FLOPs of a whole run of given steps on one rank, by the keep probabilities.

    With `batch.micro_sequences` auto it is that of one pass a step.
    """
    # These import torch.
    from pretrain.data.batches import predictions_per_batch
    from pretrain.model.cost import training_cost

    cost = training_cost(
        settings.model, settings.data.sequence_length, settings.objective, settings.electra
    )
    passes, thetas = micro_batches_per_step(settings, 1), thetas_of_run(settings)
    rows = settings.batch.global_sequences // passes
    total = math.fsum(
        count
        * cost.of_pass(
            rows=rows,
            predictions=predictions_per_batch(settings) / passes,
            kept=kept_shares(theta, settings.model.num_layers, settings.layer_drop, rows),
            ranks=1,
            by_rows=settings.layer_drop.draw_per == "sequence",
        )
        for theta, count in thetas.items()
    )
    return total / thetas.total() * passes * settings.steps


def _seconds(budget: Budget, baseline: RunSettings) -> float:
    if budget.amount is not None:
        return budget.amount
    if baseline.hours is None:
        raise ConfigError(
            f"{baseline.name}: how many seconds {baseline.steps:,} steps take is not known before; "
            "give hours, or the budget as seconds=NUMBER (tupelo train --dry-run --measure 60)"
        )
    return baseline.hours * SECONDS_PER_HOUR


def _steps(budget: Budget, settings: RunSettings, baseline: RunSettings) -> int:
    """Return the number of steps whose cost is nearest to the budget, at least one."""
    if budget.unit == "flops":
        amount = budget.amount or expected_flops(baseline)
        return _steps_of_flops(settings, amount)
    per_step = 1 if budget.unit == "steps" else _tokens_per_step(settings)
    of_baseline = 1 if budget.unit == "steps" else _tokens_per_step(baseline)
    amount = budget.amount or float(baseline.steps * of_baseline)
    return max(1, round(amount / per_step))


def _tokens_per_step(settings: RunSettings) -> int:
    return settings.batch.global_sequences * settings.data.sequence_length


def _steps_of_flops(settings: RunSettings, amount: float) -> int:
    """Return the steps nearest to an amount of FLOPs, which ascend with the steps.

    The mean FLOPs of a step hardly depend on the number of steps, since layer drop follows the
    share of them that is done, so that dividing by it soon finds the place.
    """
    steps = settings.steps

    def flops(steps: int) -> float:
        return expected_flops(
            settings.model_copy(update={"steps": steps, **_drop(settings, steps)})
        )

    for _ in range(20):
        nearest = max(1, round(amount * steps / flops(steps)))
        if nearest == steps:
            break
        steps = nearest
    around = [number for number in (steps - 1, steps, steps + 1) if number > 0]
    return min(around, key=lambda number: abs(flops(number) - amount))


def _drop(settings: RunSettings, steps: int) -> dict[str, object]:
    """Return the layer drop of a run of so many steps: its own speed is stated in steps."""
    gamma = fitted(settings, steps).get("layer_drop.gamma")
    if gamma is None:
        return {}
    return {"layer_drop": settings.layer_drop.model_copy(update={"gamma": gamma})}
