"""Units fail alone, in processes that die or are stopped. The units are numbers."""

import os
import signal
import time

import pytest

from pretrain.config.errors import ConfigError
from pretrain.train.sweeps.pool import Worker, run_units

LONG = 60  # seconds: until a signal ends it


def square(unit, send):
    """Send the square of a number; a negative one is a signal that kills the process."""
    if unit < 0:
        os.kill(os.getpid(), -unit)
    if unit == 0:
        raise SystemExit(7)
    time.sleep(unit if unit == LONG else 0)
    send((os.getpid(), unit * unit))


def prepared():
    return square


def pool_of(count, units, on_end=None):
    """Run units on workers; return what was sent, in which processes, and each status."""
    sent, processes, statuses = {}, {}, {}

    def receive(unit, message):
        processes[unit], sent[unit] = message

    def ended(unit, status, stopped):
        statuses[unit] = status, stopped
        if on_end:
            on_end(unit, status, stopped)

    workers = [Worker(prepared, receive) for _ in range(count)]
    try:
        run_units(units, workers, lambda unit, worker: worker.job(unit), ended)
    finally:
        for worker in workers:
            worker.end()
    return sent, processes, statuses


def test_a_process_works_on_one_unit_after_another_and_a_dead_one_fails_its_unit_alone():
    sent, processes, statuses = pool_of(1, [1, 2, -signal.SIGKILL, 3, 0, 4])
    assert sent == {1: 1, 2: 4, 3: 9, 4: 16}
    assert processes[1] == processes[2] != processes[3] != processes[4]
    failed = {unit: status for unit, (status, _) in statuses.items() if status}
    assert failed == {-signal.SIGKILL: 128 + signal.SIGKILL, 0: 7}
    assert not any(stopped for _, stopped in statuses.values())


def test_an_error_of_what_records_a_unit_ends_the_pool_when_the_others_have_ended():
    ended = []

    def record(unit, *_):
        ended.append(unit)
        if len(ended) == 1:
            raise ConfigError("the disk is full")

    with pytest.raises(ConfigError, match="the disk is full"):
        pool_of(2, [1, 2, 3, 4], record)
    assert sorted(ended) == [1, 2]


def test_a_signal_ends_the_pool_and_no_unit_that_was_running_has_failed():
    ended, number = [], signal.SIGINT

    def stop(*end):
        ended.append(end)
        os.kill(os.getpid(), number)

    with pytest.raises(SystemExit):
        pool_of(2, [1, LONG, 3], stop)
    assert ended[0] == (1, 0, False) and ended[1:] == [(LONG, 128 + number, True)]


class Unstartable:
    def start(self):
        raise OSError("no memory")


def test_a_unit_that_cannot_be_started_fails_alone():
    ends = []
    run_units("ab", [None], lambda unit, slot: Unstartable(), lambda *end: ends.append(end))
    assert [(unit, str(error), stopped) for unit, error, stopped in ends] == [
        ("a", "no memory", False),
        ("b", "no memory", False),
    ]
