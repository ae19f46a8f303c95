import math

import pytest

from pretrain.config.errors import ConfigError
from pretrain.config.settings import LearningRateSettings
from pretrain.schedules.learning_rate import learning_rate_at

STEPS = 1000


def rates(**values):
    settings = LearningRateSettings(**{"peak": 2e-3, "warmup_ratio": 0.1, **values})
    return [learning_rate_at(step, settings, STEPS) for step in range(STEPS)]


EXPONENTIAL = {"schedule": "warmup_linear_decay_exp", "decay_rate": 0.99, "decay_steps": 50}


@pytest.mark.parametrize(
    "values",
    [
        {"schedule": "warmup_linear"},
        {"schedule": "warmup_cosine"},
        {"schedule": "warmup_constant"},
        EXPONENTIAL,
    ],
)
def test_warm_up_is_linear_and_ends_at_the_peak(values):
    found = rates(**values)
    assert found[:100] == pytest.approx([2e-3 * (step + 1) / 100 for step in range(100)])
    assert max(found) == pytest.approx(2e-3)
    assert all(rate > 0 for rate in found)


def test_the_linear_schedule_ends_at_zero():
    found = rates(schedule="warmup_linear")
    for step in (100, 101, 550, 999):
        assert found[step] == pytest.approx(2e-3 * (1000 - step) / 900)


def test_the_exponential_schedule_is_that_of_table_4():
    found = rates(**EXPONENTIAL)
    for step in (100, 150, 555, 999):
        assert found[step] == pytest.approx(2e-3 * 0.99 ** ((step - 100) / 50))


def test_the_exponential_schedule_of_pld_ends_far_from_zero():
    """PLD Table 4: 0.99 every 1000 of 200,000 steps leaves 14 % of the peak."""
    settings = LearningRateSettings(
        schedule="warmup_linear_decay_exp",
        peak=1e-3,
        warmup_ratio=0.02,
        decay_rate=0.99,
        decay_steps=1000,
    )
    assert learning_rate_at(200_000, settings, 200_000) == pytest.approx(1e-3 * 0.99**196)


def test_the_cosine_schedule_is_half_a_cosine():
    found = rates(schedule="warmup_cosine")
    for step in (100, 325, 550, 999):
        assert found[step] == pytest.approx(1e-3 * (1 + math.cos(math.pi * (step - 100) / 900)))


def test_without_warm_up_the_first_step_has_the_peak():
    assert rates(warmup_ratio=0.0)[0] == 2e-3


@pytest.mark.parametrize("schedule", ["warmup_linear", "warmup_cosine"])
def test_a_step_beyond_a_run_that_is_all_warm_up_has_the_peak(schedule):
    """`plan` and `profile` take more steps than such a short run has."""
    settings = LearningRateSettings(schedule=schedule, peak=2e-3, warmup_ratio=0.96)
    assert learning_rate_at(9, settings, 10) == learning_rate_at(10, settings, 10) == 2e-3


def test_an_unknown_schedule_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match="'warmup_linea'.*did you mean warmup_linear"):
        rates(schedule="warmup_linea")
