"""Schedules over the steps of a run, however often it was lengthened, against their formulas."""

import math
from collections import Counter

import pytest

from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.config.settings import LearningRateSettings
from pretrain.schedules.learning_rate import learning_rate_at
from pretrain.schedules.step_plan import Schedule, thetas_of_run

PEAK = 1e-3
DROPS = ("--layer_drop.schedule", "progressive", "--layer_drop.theta_bar", "0.4")


def rate(finished, steps, shape):
    """Return the rate of the step after `finished` of `steps` steps, a tenth of which warm up."""
    warmup = round(0.1 * steps)
    if finished < warmup:
        return PEAK * (finished + 1) / warmup
    share = (finished - warmup) / (steps - warmup)
    return {
        "warmup_linear": PEAK * (1 - share),
        "warmup_cosine": PEAK * (1 + math.cos(math.pi * share)) / 2,
        "warmup_linear_decay_exp": PEAK * 0.9 ** ((finished - warmup) / 7),
        "warmup_constant": PEAK,
    }[shape]


@pytest.mark.parametrize(
    "shape", ["warmup_linear", "warmup_cosine", "warmup_linear_decay_exp", "warmup_constant"]
)
def test_schedules_are_those_of_the_formulas(shape):
    decay = ("--learning_rate.decay_rate", "0.9", "--learning_rate.decay_steps", "7")
    words = ["--learning_rate.schedule", shape, *(decay if "exp" in shape else ()), *DROPS]
    settings = load_settings("tiny_cpu", [*words, "--steps", "100"])
    schedule = Schedule(settings, 1)
    plans = [schedule.plan(step) for step in range(1, 101)]
    for finished, plan in enumerate(plans):
        assert plan.learning_rate == pytest.approx(rate(finished, 100, shape), rel=1e-12)
        assert plan.theta == pytest.approx(0.6 * math.exp(-finished) + 0.4, rel=1e-12)
    assert [step for step in range(101) if schedule.horizon.is_end(step)] == [100]
    assert thetas_of_run(settings) == Counter(one.theta for one in plans)


@pytest.mark.parametrize("schedule", ["warmup_linear", "warmup_cosine"])
def test_a_step_beyond_a_run_that_is_all_warm_up_has_the_peak(schedule):
    """`plan` and `profile` take more steps than such a short run has."""
    settings = LearningRateSettings(schedule=schedule, peak=2e-3, warmup_ratio=0.96)
    assert learning_rate_at(9, settings, 10) == learning_rate_at(10, settings, 10) == 2e-3


def test_steps_that_each_pass_a_larger_share_of_the_run_rise_to_the_peak():
    settings = LearningRateSettings(schedule="warmup_linear", peak=2e-3, warmup_ratio=0.5)
    rates = [learning_rate_at(place, settings, 10, stride=2.0) for place in (0, 2, 4, 6)]
    assert rates == pytest.approx([0.8e-3, 1.6e-3, 2e-3, 1.6e-3])


def test_an_unknown_schedule_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match="'warmup_linea'.*did you mean warmup_linear"):
        learning_rate_at(0, LearningRateSettings(schedule="warmup_linea", peak=1), 10)
