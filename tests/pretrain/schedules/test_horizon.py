"""Runs against a made-up clock: the end, the position on the way, and what a checkpoint holds."""

import dataclasses
import json
import math
import random

import pytest

from pretrain.config.recipe import load_settings
from pretrain.schedules.horizon import Horizon, ScheduleSegment
from pretrain.schedules.step_plan import Schedule
from pretrain.train.recording.progress import Progress

STEPS = 1000  # of the schedule, not of the run
HOUR = 3600


class SimulatedRun:
    """Takes steps of given durations, and looks at the clock where a trainer does."""

    def __init__(self, hours, seconds_of_step, log_every_steps=100):
        self.horizon = Horizon(STEPS, hours)
        self.seconds_of_step, self.log_every_steps = seconds_of_step, log_every_steps
        self.step, self.seconds = 0, 0.0
        self.positions, self.strides, self.looks = [], [], []

    def go_on(self, until=math.inf):
        while not self.horizon.is_end(self.step) and self.step < until:
            self.positions.append(self.horizon.position(self.step))
            self.strides.append(self.horizon.segment.stride)
            self.seconds += self.seconds_of_step(self.step, self.seconds)
            self.step += 1
            if self.step % self.log_every_steps == 0 or self.horizon.is_due(self.step):
                self.horizon.renew(self.step, self.seconds)
                self.looks.append(self.step)
        return self


def noisy(seed, mean):
    """Return a duration in which the middle of the hour is twice as slow and single steps stall."""
    generator = random.Random(seed)

    def seconds_of_step(step, now):
        slow = 2 if HOUR / 3 < now < 2 * HOUR / 3 else 1
        start = 40 if step == 0 else 0  # kernels are compiled
        stall = 20 * mean if generator.random() < 0.003 else 0
        return slow * mean * generator.uniform(0.7, 1.3) + start + stall

    return seconds_of_step


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("mean", "log_every_steps"), [(0.5, 100), (0.5, 1), (7, 20), (0.05, 5000)])
def test_an_hour_ends_after_an_hour_whatever_the_speed_does(mean, log_every_steps, seed):
    run = SimulatedRun(1, noisy(seed, mean), log_every_steps).go_on()
    assert abs(run.seconds - HOUR) < 0.01 * HOUR
    assert abs(run.seconds - HOUR) < 2 * 2.6 * mean  # two of the longest ordinary steps
    assert run.positions == sorted(run.positions) and run.positions[0] == 0
    assert run.positions[-1] + run.strides[-1] == pytest.approx(STEPS, rel=0.01)


def test_at_a_constant_speed_the_position_is_the_share_of_the_time():
    run = SimulatedRun(1, lambda step, now: 0.5).go_on()
    assert run.step == HOUR / 0.5 and run.seconds == HOUR
    for step, position in enumerate(run.positions):
        # it stands still in the two steps before a speed is known
        assert position == pytest.approx(STEPS * max(0, step - 2) / (run.step - 2), abs=1e-6)


def test_a_machine_that_becomes_slower_for_good_is_followed():
    run = SimulatedRun(1, lambda step, now: 1.0 if now < HOUR / 2 else 4.0, 20).go_on()
    # half of the time at one step a second, half at a quarter of that
    assert run.step == pytest.approx(HOUR / 2 + HOUR / 8, abs=3)
    middle = next(step for step in range(run.step) if step >= HOUR / 2)
    assert run.positions[middle] == pytest.approx(STEPS / 2, rel=0.01)
    # until the change is noticed and believed, some 50 steps are a quarter as far as they should
    assert run.positions[middle + HOUR // 16] == pytest.approx(STEPS * 3 / 4, rel=0.04)


def test_the_clock_is_looked_at_often_only_at_the_beginning_and_the_end():
    run = SimulatedRun(1, lambda step, now: 0.5, 100).go_on()
    extra = [step for step in run.looks if step % 100]
    assert extra[:7] == [1, 2, 4, 8, 16, 32, 64]
    assert all(step < 200 or step > run.step - 200 for step in extra)
    assert len(extra) < 20
    assert run.looks[-2:] == [run.step - 1, run.step]


@pytest.mark.parametrize("seconds", [0.3, 0.99, 2.4])
def test_a_budget_of_a_step_or_two_is_kept_too(seconds):
    run = SimulatedRun(seconds / HOUR, lambda step, now: 1.0).go_on()
    assert run.step == max(1, math.floor(seconds + 0.5))


@pytest.mark.parametrize("stop", [1, 2, 100, 3000, 7199])
def test_a_run_that_goes_on_from_its_state_ends_where_it_would_have(stop):
    """The speed is constant here, so that both clocks agree."""
    whole = SimulatedRun(1, lambda step, now: 0.5).go_on()
    first = SimulatedRun(1, lambda step, now: 0.5).go_on(until=stop)
    first.horizon.renew(stop, first.seconds)  # as before a checkpoint
    second = SimulatedRun(1, lambda step, now: 0.5)
    second.horizon.load(dataclasses.replace(first.horizon.segment))
    second.step, second.seconds = stop, first.seconds
    second.go_on()
    assert second.seconds == pytest.approx(HOUR, abs=1)
    together = first.positions + second.positions
    assert together == pytest.approx(whole.positions[: len(together)], abs=1)
    assert second.positions[0] == first.horizon.position(stop)


def test_the_progress_of_a_run_holds_its_horizon():
    settings = load_settings("tiny_cpu", ["--hours", "1", "--layer_drop.schedule", "progressive"])
    progress = Progress(settings, 1)
    progress.schedule.horizon.renew(1, 1.0)
    progress.schedule.horizon.renew(3, 5.0)
    resumed = Progress(settings, 1)
    resumed.load(json.loads(json.dumps(progress.state())))
    assert resumed.schedule.plan(1001) == progress.schedule.plan(1001)
    assert resumed.schedule.horizon.position(1000) > 0 and resumed.schedule.plan(1001).theta < 1
    # 3595 seconds are left, at two seconds a step
    assert resumed.schedule.horizon.is_end(3 + 1798)


def test_theta_of_bing_bert_lags_a_step_of_a_time_budget_too():
    schedule = Schedule(load_settings("pld_base_bing_bert", ("--hours", "1")), 1)
    schedule.horizon.load(ScheduleSegment(stride=200.0, end_step=1000))
    thetas = [schedule.plan(step).theta for step in range(1, 5)]
    expected = [0.5 * math.exp(-0.001 * 200 * max(0, step - 1)) + 0.5 for step in range(4)]
    assert thetas == pytest.approx(expected, rel=1e-12)


def test_warm_up_of_a_time_budget_has_the_rate_of_the_end_of_each_step():
    words = ("--hours", "1", "--steps", "1000", "--learning_rate.warmup_ratio", "0.1")
    schedule = Schedule(load_settings("tiny_cpu", words), 1)
    schedule.horizon.load(ScheduleSegment(stride=10.0, end_step=100))
    rates = [schedule.plan(step).learning_rate for step in (1, 2, 10)]
    peak = schedule.settings.learning_rate.peak
    assert rates == pytest.approx([0.1 * peak, 0.2 * peak, peak])
