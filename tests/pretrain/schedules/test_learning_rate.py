import pytest

from pretrain.config.errors import ConfigError
from pretrain.config.settings import LearningRateSettings
from pretrain.schedules.learning_rate import learning_rate_at


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


@pytest.mark.parametrize("schedule", ["warmup_linear", "warmup_cosine"])
def test_a_step_beyond_a_run_that_is_all_warm_up_has_the_peak(schedule):
    """`plan` and `profile` take more steps than such a short run has."""
    settings = LearningRateSettings(schedule=schedule, peak=2e-3, warmup_ratio=0.96)
    assert learning_rate_at(9, settings, 10) == learning_rate_at(10, settings, 10) == 2e-3


def test_an_unknown_schedule_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match="'warmup_linea'.*did you mean warmup_linear"):
        learning_rate_at(0, LearningRateSettings(schedule="warmup_linea", peak=1), 10)
