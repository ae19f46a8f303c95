import pytest

from pretrain.config.errors import ConfigError
from pretrain.config.settings import LearningRateSettings
from pretrain.schedules.learning_rate import learning_rate_at


@pytest.mark.parametrize("schedule", ["warmup_linear", "warmup_cosine"])
def test_a_step_beyond_a_run_that_is_all_warm_up_has_the_peak(schedule):
    """`plan` and `profile` take more steps than such a short run has."""
    settings = LearningRateSettings(schedule=schedule, peak=2e-3, warmup_ratio=0.96)
    assert learning_rate_at(9, settings, 10) == learning_rate_at(10, settings, 10) == 2e-3


def test_an_unknown_schedule_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match="'warmup_linea'.*did you mean warmup_linear"):
        learning_rate_at(0, LearningRateSettings(schedule="warmup_linea", peak=1), 10)
