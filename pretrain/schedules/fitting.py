"""A schedule of the same shape over another number of steps."""

from pretrain.config.settings import RunSettings


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
