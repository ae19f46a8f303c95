"""Schedules of runs that are lengthened, against formulas of the steps since the last restart."""

import math

import pytest

from pretrain.checkpoint.lengthening import lengthened
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.schedules.horizon import ScheduleSegment
from pretrain.schedules.run_thetas import mean_theta
from pretrain.schedules.step_plan import Schedule, horizon_of_steps
from tests.pretrain.schedules.test_horizon import HOUR, STEPS, SimulatedRun

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


def lengthen_hours(stop, hours, restarts=()):
    """Return a run of one hour up to `stop`, and the same run with more hours from there."""
    first = SimulatedRun(1, lambda step, now: 0.5).go_on(until=stop)
    first.horizon.renew(first.step, first.seconds)
    second = SimulatedRun(hours, lambda step, now: 0.5)
    second.horizon.restarts = restarts
    second.horizon.load(ScheduleSegment(**first.horizon.state()))
    second.step, second.seconds = first.step, first.seconds
    second.horizon.lengthen(second.step, second.seconds)
    return first, second


@pytest.mark.parametrize("stop", [100, 3000, 7200])
def test_stretched_hours_have_the_position_of_their_share_of_the_time(stop):
    _, second = lengthen_hours(stop, 3)
    start = second.step
    second.go_on()
    assert second.seconds == pytest.approx(3 * HOUR, abs=1)
    for step, position in enumerate(second.positions, start):
        assert position == pytest.approx(STEPS * step / 21600, abs=0.1)


def test_restarted_hours_run_through_the_schedule_in_the_time_that_is_left():
    _, second = lengthen_hours(7200, 3, restarts=(7200,))
    second.go_on()
    assert second.seconds == pytest.approx(3 * HOUR, abs=1)
    for step, position in enumerate(second.positions):
        assert position == pytest.approx(STEPS * step / 14400, abs=0.1)


@pytest.mark.parametrize("stop", [1, 2, 100, 7199, 7200])
def test_hours_that_are_the_same_change_nothing(stop):
    first, second = lengthen_hours(stop, 1)
    assert second.horizon.state() == first.horizon.state()


def test_a_checkpoint_after_the_restart_does_not_restart_again():
    _, second = lengthen_hours(7200, 3, restarts=(7200,))
    second.go_on(until=9000)
    second.horizon.renew(second.step, second.seconds)
    state = second.horizon.state()
    third = SimulatedRun(3, lambda step, now: 0.5)
    third.horizon.restarts = (7200,)
    third.horizon.load(ScheduleSegment(**state))
    third.horizon.lengthen(second.step, second.seconds)
    assert third.horizon.state() == state
