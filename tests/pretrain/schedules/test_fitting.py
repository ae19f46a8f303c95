"""Schedules of the same shape over another number of steps."""

import pytest

from pretrain.config.recipe import load_settings
from pretrain.schedules.fitting import fitted
from pretrain.schedules.learning_rate import learning_rate_at


@pytest.mark.parametrize("steps", [5_000, 200_000, 3_000_000])
def test_a_fitted_exponential_decay_ends_where_the_recipes_does(steps):
    settings = load_settings("pld_base")
    rate = settings.learning_rate
    fit = rate.model_copy(
        update={"decay_steps": fitted(settings, steps)["learning_rate.decay_steps"]}
    )
    assert learning_rate_at(steps, fit, steps) == pytest.approx(1e-3 * 0.99**196, rel=0.01)


def test_decays_that_are_stated_in_steps_are_scaled():
    drops = ("--layer_drop.schedule", "progressive", "--layer_drop.gamma", "0.01")
    settings = load_settings("tiny_cpu", ["--steps", "2000", *drops])
    assert fitted(settings, 7200)["layer_drop.gamma"] == pytest.approx(0.01 * 2000 / 7200)


def test_a_recipe_that_is_all_warm_up_can_be_fitted():
    words = (
        *("--learning_rate.schedule", "warmup_linear_decay_exp", "--learning_rate.decay_rate"),
        *("0.9", "--learning_rate.decay_steps", "500"),
        *("--steps", "1", "--learning_rate.warmup_ratio", "0.6"),
    )
    settings = load_settings("tiny_cpu", words)
    assert fitted(settings, 1)["learning_rate.decay_steps"] == 500
    assert fitted(settings, 1000)["learning_rate.decay_steps"] == 500 * 400
