"""Schedules of runs that are lengthened, against formulas of the steps since the last restart."""

import math

import pytest

from pretrain.checkpoint.changes import lengthened
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.schedules.step_plan import Schedule, horizon_of_steps, mean_theta

PEAK = 1e-3
DROPS = ("--layer_drop.schedule", "progressive", "--layer_drop.theta_bar", "0.4")


def rate(since, span, shape):
    """Return the rate of the step after `since` of `span` steps, a tenth of which warm up."""
    warmup = round(0.1 * span)
    if since < warmup:
        return PEAK * (since + 1) / warmup
    share = (since - warmup) / (span - warmup)
    return {
        "warmup_linear": PEAK * (1 - share),
        "warmup_cosine": PEAK * (1 + math.cos(math.pi * share)) / 2,
        "warmup_linear_decay_exp": PEAK * 0.9 ** ((since - warmup) / 7),
        "warmup_constant": PEAK,
    }[shape]


@pytest.mark.parametrize(
    "shape", ["warmup_linear", "warmup_cosine", "warmup_linear_decay_exp", "warmup_constant"]
)
def test_stretched_and_restarted_schedules_are_those_of_the_formulas(shape):
    decay = ("--learning_rate.decay_rate", "0.9", "--learning_rate.decay_steps", "7")
    words = ["--learning_rate.schedule", shape, *(decay if "exp" in shape else ()), *DROPS]
    longer = load_settings("tiny_cpu", [*words, "--steps", "100"])
    stretched = Schedule(lengthened(longer, how="stretch", step=40), 1)
    restarted = Schedule(lengthened(longer, how="restart", step=40), 1)
    for finished in range(40, 100):
        for schedule, since, span in ((stretched, finished, 100), (restarted, finished - 40, 60)):
            plan = schedule.plan(finished + 1)
            assert plan.learning_rate == pytest.approx(rate(since, span, shape), rel=1e-12)
            theta = 0.6 * math.exp(-100 / span * since) + 0.4
            assert plan.theta == pytest.approx(theta, rel=1e-12)
    for schedule in (stretched, restarted):
        ends = [step for step in range(101) if schedule.horizon.is_end(step)]
        assert ends == [100]


def test_a_run_with_restarts_is_its_parts_one_after_the_other():
    whole = load_settings("tiny_cpu", ["--steps", "90", "--restarts_after", "20,50", *DROPS])
    for start, span in ((0, 20), (20, 30), (50, 40)):
        part = Schedule(load_settings("tiny_cpu", ["--steps", str(span), *DROPS]), 1)
        for step in range(1, span + 1):
            ours, theirs = Schedule(whole, 1).plan(start + step), part.plan(step)
            assert (ours.learning_rate, ours.theta) == (theirs.learning_rate, theirs.theta)
    horizon = horizon_of_steps(whole)
    assert [horizon.span(finished) for finished in (0, 19, 20, 89)] == [20, 20, 30, 40]
    thetas = [Schedule(whole, 1).plan(step).theta for step in range(1, 91)]
    assert mean_theta(whole) == pytest.approx(sum(thetas) / 90, rel=1e-12)


def test_restarts_add_up_and_replace_planned_ones_that_are_later():
    settings = load_settings("tiny_cpu", ["--steps", "90", "--restarts_after", "20,50"])
    assert lengthened(settings, how="restart", step=30).restarts_after == (20, 30)
    assert lengthened(settings, how="restart", step=50).restarts_after == (20, 50)
    assert lengthened(settings, how="restart", step=0).restarts_after == (20, 50)


@pytest.mark.parametrize(
    ("given", "message"),
    [("40,20", "in ascending order"), ("20", "is not before the end of the run, steps=20")],
)
def test_restarts_that_cannot_be_are_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        load_settings("tiny_cpu", ["--restarts_after", given])
