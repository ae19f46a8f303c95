"""Seconds of waiting for a processor, on a system that is kept busy on purpose."""

import os
import subprocess
import sys
import time

import psutil
import pytest

from pretrain.distributed.stopwatch import SCHEDULER_STATISTICS, Stopwatch, waited_seconds


@pytest.mark.skipif(waited_seconds() is None, reason="this system does not record waiting")
def test_a_thread_that_shares_its_processor_waits_while_it_does_not_run():
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    busy = "print(flush=True)\nwhile True: pass"
    # It inherits the one processor.
    other = subprocess.Popen([sys.executable, "-c", busy], stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None and other.stdout.readline()
        stolen = stolen_seconds(min(before))
        watch, ran = Stopwatch(), time.thread_time()
        while watch.seconds() < 1.0:
            pass
        waited, ran, seconds = watch.waited(), time.thread_time() - ran, watch.seconds()
        stolen = stolen_seconds(min(before)) - stolen
    finally:
        os.sched_setaffinity(0, before)
        other.kill()
        other.communicate()
    # A thread that never sleeps runs or waits: the processor's own clock holds the rest, but for
    # what another virtual machine took of its turn.
    assert waited == pytest.approx(seconds - ran, abs=0.1 + stolen)
    assert waited > 0.2


def stolen_seconds(processor):
    """Return how long other virtual machines have had this processor."""
    return psutil.cpu_times(percpu=True)[processor].steal


def test_sleeping_is_not_waiting():
    watch = Stopwatch()
    time.sleep(0.3)
    assert watch.seconds() >= 0.3
    assert (watch.waited() or 0.0) < 0.15


@pytest.mark.parametrize("content", [None, "", "12", "a b c"])
def test_a_system_that_does_not_record_it_gives_none(tmp_path, content):
    file = tmp_path / SCHEDULER_STATISTICS.name
    if content is not None:
        file.write_text(content)
    assert waited_seconds(file) is None
