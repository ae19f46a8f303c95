"""The keep ratios of all steps of a run together, from which its expected cost follows.

Of a run of given hours, as if it had the steps of its settings.
"""

from collections import Counter

from pretrain.config.settings import RunSettings
from pretrain.schedules.layer_drop import theta_at
from pretrain.schedules.step_plan import horizon_of_steps

# theta varies over a hundredth of a run or more: this many samples give its mean to 1e-4.
MOST_SAMPLES = 10_000


def thetas_of_run(settings: RunSettings) -> Counter[float]:
    """Return how often each theta occurs among the steps of a run.

    Those of every step, or of 10,000 evenly spaced positions where there are more steps.
    """
    horizon, steps = horizon_of_steps(settings), settings.steps
    places = [float(step) for step in range(min(steps, MOST_SAMPLES))]
    if steps > MOST_SAMPLES:
        places = [(number + 0.5) * steps / MOST_SAMPLES for number in range(MOST_SAMPLES)]
    return Counter(
        theta_at(horizon.position(place), settings.layer_drop, horizon.span(place))
        for place in places
    )


def mean_theta(settings: RunSettings) -> float:
    """Return the mean keep ratio over the whole run.

    The expected number of blocks that run is linear in theta, so that the steps of a run take as
    long on average as steps at this theta.
    """
    thetas = thetas_of_run(settings)
    return sum(theta * count for theta, count in thetas.items()) / thetas.total()
