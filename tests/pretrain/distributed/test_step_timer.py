"""Phases by a clock that the tests turn, and by events that they let pass."""

from types import SimpleNamespace

import pytest
import torch

from pretrain.distributed import step_timer as module
from pretrain.distributed.step_timer import Phases


@pytest.fixture
def clock(monkeypatch):
    """The time of `time.perf_counter`; tests move it by hand."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(module.time, "perf_counter", lambda: clock.now)
    return clock


def test_the_seconds_of_a_phase_are_added_up(clock):
    phases = Phases("cpu")
    with phases.phase("backward"):
        clock.now += 3
    clock.now += 1000  # in no phase
    with phases.phase("optimizer"):
        clock.now += 5
    with phases.phase("backward"):
        clock.now += 4
    assert phases.take_seconds() == {"backward": 7, "optimizer": 5}
    assert phases.take_seconds() == {}


def test_a_phase_ends_where_an_error_leaves_it(clock):
    phases = Phases("cpu")
    with pytest.raises(ZeroDivisionError), phases.phase("forward"):
        clock.now += 3
        raise ZeroDivisionError
    clock.now += 5
    assert phases.take_seconds() == {"forward": 3}


def test_getting_items_is_data_and_using_them_is_not(clock):
    def slow_loader():
        for item in "abc":
            clock.now += 2
            yield item
        clock.now += 7  # the end is waited for too

    phases = Phases("cpu")
    for _ in phases.waiting_for(slow_loader()):
        clock.now += 30
    assert phases.take_seconds() == {"data": 3 * 2 + 7}


class Device:
    """A stream of CUDA events that the device passes when the test says so."""

    def __init__(self):
        self.now, self.stream, self.created, self.waiting = 0.0, "computing", 0, []

    def current_stream(self):
        return self.stream

    def pass_all(self):
        for event, milliseconds in self.waiting:
            self.now += milliseconds
            event.passed_at = self.now
        self.waiting = []


@pytest.fixture
def device(monkeypatch):
    device = Device()

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing
            device.created += 1

        def record(self, stream):
            assert stream == "computing"
            self.passed_at = None
            device.waiting.append((self, 1.0))  # a millisecond of work before each event

        def query(self):
            return self.passed_at is not None

        def elapsed_time(self, end):
            assert self.query() and end.query(), "reading an event that is ahead would wait"
            return end.passed_at - self.passed_at

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", device.current_stream)
    return device


def one_step(phases):
    for name in ("data", "forward", "backward"):
        with phases.phase(name):
            pass


def test_on_cuda_events_tell_the_time_between_phases(device):
    phases = Phases("cuda")
    one_step(phases)
    assert phases.take_seconds() == {}  # no time has passed, and nothing waits
    one_step(phases)
    device.pass_all()
    expected = {"data": 2e-3, "forward": 2e-3, "backward": 2e-3}  # a millisecond each
    assert phases.take_seconds() == pytest.approx(expected)
    assert phases.take_seconds() == {}


def test_events_that_have_passed_are_used_again(device):
    phases = Phases("cuda")
    for _ in range(100):
        one_step(phases)
        device.pass_all()
    per_step = 2 + 2 + 2
    assert device.created <= 2 * per_step
    assert phases.take_seconds()["forward"] == pytest.approx(0.1)
