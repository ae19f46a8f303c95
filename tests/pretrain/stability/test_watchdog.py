"""Stuck steps, and how they are reported."""

import dataclasses
import itertools
import re
import signal
import statistics
import subprocess
import sys
import time

import psutil
import pytest
from pydantic import ValidationError

from pretrain.config.settings import WatchdogSettings
from pretrain.distributed.processes import (
    RankProcess,
    process_of,
    this_host,
    this_process,
    wanted_seconds,
)
from pretrain.distributed.ranks import Ranks
from pretrain.stability import idleness
from pretrain.stability import watchdog as module
from pretrain.stability.watchdog import FIRST_STEPS, START, Limits, Watchdog, Watched
from tests.pretrain.conftest import two_ranks


def test_a_step_may_take_twenty_times_the_median_and_two_minutes():
    limits, seconds = Limits(WatchdogSettings()), [3.0, 30.0, 7.0, 8.0]
    assert limits.of(Watched(1, None, 0.0)) == 120
    for taken in seconds:
        limits.add(Watched(1, None, 0.0), taken)
    assert limits.of(Watched(5, None, 0.0)) == 20 * statistics.median(seconds) == 150
    limits.add(Watched(5, "the evaluation", 0.0), 1000.0)
    assert limits.of(Watched(5, None, 0.0)) == 150  # learns from steps only
    assert limits.of(Watched(6, "the evaluation", 0.0)) == 5000
    assert limits.of(Watched(6, "the checkpoint", 0.0)) == 1800


def test_after_the_first_step_the_start_has_ten_minutes_or_five_times_the_longest():
    limits = Limits(WatchdogSettings())
    assert limits.of(Watched(1, START, 0.0)) == 1800
    limits.add(Watched(1, START, 0.0), 20.0)
    assert limits.of(Watched(2, START, 0.0)) == 600
    limits.add(Watched(2, START, 0.0), 300.0)  # kernels of another depth
    assert limits.of(Watched(3, START, 0.0)) == 1500


def test_given_seconds_are_those_of_a_step_and_a_tenth_of_a_phase():
    limits = Limits(WatchdogSettings(stuck_after_seconds=7))
    limits.add(Watched(1, None, 0.0), 1000.0)
    assert limits.of(Watched(2, None, 0.0)) == 7
    assert limits.of(Watched(2, "the checkpoint", 0.0)) == 70


def test_an_end_before_the_report_is_refused():
    with pytest.raises(ValidationError, match="end_after_seconds=5 is less than"):
        WatchdogSettings(stuck_after_seconds=6, end_after_seconds=5)


@pytest.fixture
def neighbour():
    """The process of another rank, on this machine."""
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def peer_of(process):
    return RankProcess(1, this_host(), process.pid, process_of(process.pid).started)


def test_the_state_of_a_process_is_that_of_psutil(neighbour):
    ours, theirs = process_of(neighbour.pid), psutil.Process(neighbour.pid)
    assert ours.parent == theirs.ppid()
    assert ours.started == pytest.approx((theirs.create_time() - psutil.boot_time()) * 100, abs=100)
    peer = peer_of(neighbour)
    while theirs.status() != psutil.STATUS_SLEEPING:
        time.sleep(0.01)
    assert not peer.is_gone() and "waits" in peer.condition(peer.machine)
    neighbour.send_signal(signal.SIGSTOP)
    while theirs.status() != psutil.STATUS_STOPPED:
        time.sleep(0.01)
    assert f"is stopped (SIGSTOP or Ctrl-Z; continue it with: kill -CONT {neighbour.pid})" in (
        peer.condition(peer.machine)
    )
    assert "is on another machine" in peer.condition("elsewhere")
    later = dataclasses.replace(peer, started=peer.started + 1)  # its number was given again
    assert later.is_gone()
    neighbour.kill()
    while theirs.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert peer.is_gone() and "is gone" in peer.condition(peer.machine)


class Watching:
    """A watchdog that looks often, and what it says."""

    def __init__(self, folder, monkeypatch, peers, **settings):
        monkeypatch.setattr(module, "POLL_SECONDS", 0.02)
        monkeypatch.setattr(module, "SUMMARY_SECONDS", 0.1)
        monkeypatch.setattr(module, "GONE_SECONDS", 0.1)
        self.said, self.ended, self.began = [], [], time.monotonic()
        monkeypatch.setattr(Watchdog, "_say", lambda watchdog, text: self.said.append(text))
        monkeypatch.setattr(Watchdog, "_end", lambda watchdog, text: self.ended.append(text))
        self.watchdog = Watchdog(
            WatchdogSettings(**settings), Ranks(0, len(peers), "cpu"), folder, peers
        )

    def reach(self, step):
        for done in range(step):
            self.watchdog.begin_step(done + 1)

    def wait_for(self, what):
        deadline = time.monotonic() + 60
        while not any(what in text for text in [*self.said, *self.ended]):
            assert time.monotonic() < deadline, (what, self.said, self.ended)
            time.sleep(0.01)


def test_a_stuck_step_is_reported_once_with_its_stack_and_once_when_it_goes_on(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(module, "TIMES_LIMIT", 100.0)
    watching = Watching(tmp_path, monkeypatch, [this_process(0)], stuck_after_seconds=0.2)
    with watching.watchdog:
        watching.reach(9)
        watching.wait_for(" s so far; stacks in ")
        assert watching.said[0].startswith("step 9 has taken ")
        time.sleep(0.5)
        watching.reach(1)
        watching.wait_for("step 9 continued after ")
        with watching.watchdog.phase("the evaluation", 10):
            time.sleep(0.5)  # it may take a hundred times as long
    assert len(watching.said) == 2 and not watching.ended
    (file,) = (tmp_path / "stuck").iterdir()
    assert file.name == "step_00000009_rank_0.txt"
    assert "in wait_for" in file.read_text()


def test_the_first_steps_and_phases_are_watched_with_more_patience(tmp_path, monkeypatch):
    watching = Watching(tmp_path, monkeypatch, [this_process(0)], stuck_after_seconds=0.1)
    with watching.watchdog:
        watching.reach(FIRST_STEPS)
        time.sleep(0.4)
        assert not watching.said
        watching.wait_for(f"the start of training at step {FIRST_STEPS} has taken ")
        assert time.monotonic() - watching.began >= 1


@pytest.mark.parametrize("computes", [True, False])
def test_a_start_in_which_no_rank_computes_is_reported_as_soon_as_a_step(
    tmp_path, monkeypatch, computes
):
    wanted = itertools.count(step=int(computes))
    monkeypatch.setattr(module, "TIMES_LIMIT", 1000.0)
    monkeypatch.setattr(idleness, "SAMPLE_SECONDS", 0.02)
    monkeypatch.setattr(idleness, "wanted_seconds", lambda _: float(next(wanted)))
    watching = Watching(tmp_path, monkeypatch, [this_process(0)], stuck_after_seconds=0.5)
    with watching.watchdog:
        watching.reach(1)
        if computes:
            time.sleep(1.5)
            assert not watching.said  # until a thousand times the seconds
        else:
            watching.wait_for("the start of training at step 1 has taken ")


def test_a_start_in_which_no_rank_computes_ends_as_soon_as_a_step(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "TIMES_LIMIT", 1000.0)
    monkeypatch.setattr(idleness, "SAMPLE_SECONDS", 0.02)
    monkeypatch.setattr(idleness, "wanted_seconds", lambda _: 0.0)
    settings = {"stuck_after_seconds": 0.5, "end_after_seconds": 1.5}
    watching = Watching(tmp_path, monkeypatch, [this_process(0)], **settings)
    with watching.watchdog:
        watching.reach(1)
        watching.wait_for("ending the job (watchdog.end_after_seconds=1.5)")
        assert time.monotonic() - watching.began >= 1.5


def test_ranks_of_several_machines_count_as_computing(tmp_path, monkeypatch):
    monkeypatch.setattr(idleness, "SAMPLE_SECONDS", 0.02)
    monkeypatch.setattr(idleness, "wanted_seconds", lambda _: 0.0)
    monkeypatch.setattr(module, "TIMES_LIMIT", 100.0)
    elsewhere = dataclasses.replace(this_process(1), machine="elsewhere")
    watching = Watching(
        tmp_path, monkeypatch, [this_process(0), elsewhere], stuck_after_seconds=0.1
    )
    with watching.watchdog:
        watching.reach(1)
        time.sleep(0.5)
        assert not watching.said


def test_a_job_that_was_stopped_does_not_count_as_idle(monkeypatch):
    monkeypatch.setattr(idleness, "wanted_seconds", lambda _: 7.0)
    ranks = idleness.Idleness([1])
    assert [ranks.seconds(now) for now in (0, 10, 20)] == [0, 10, 20]
    assert [ranks.seconds(now) for now in (220, 230)] == [0, 10]


@pytest.mark.parametrize("compiles", [False, True])
def test_samples_of_many_ranks_do_not_count_as_computing(monkeypatch, compiles):
    wanted = 0.0

    def sample(pids):  # as all ranks do, for 0.1 s each, of which 8 are over 0.5 s in 10 s
        nonlocal wanted
        began = time.thread_time()
        while time.thread_time() - began < 0.1:
            pass
        wanted += len(pids) * (time.thread_time() - began) + 10 * compiles
        return wanted

    monkeypatch.setattr(idleness, "wanted_seconds", sample)
    ranks = idleness.Idleness(range(8))
    found = [ranks.seconds(now) for now in range(0, 130, 10)]
    assert found == ([0] * 13 if compiles else list(range(0, 130, 10)))


def test_the_time_of_a_child_that_has_ended_counts():
    burn = "import time\nwhile time.process_time() < 0.5: pass"
    script = f"{sys.executable} -c '{burn}'; echo ended; exec sleep 600"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout.readline() == b"ended\n"
        wanted = wanted_seconds([parent.pid])
        parent.kill()
    assert wanted >= 0.4


def test_the_time_that_processes_want_is_that_of_all_below_them_and_not_of_those_that_wait():
    busy = subprocess.Popen(["sh", "-c", "sh -c 'while :; do :; done'; :"])
    waiting = subprocess.Popen(["sh", "-c", "sleep 600; :"])
    try:
        time.sleep(0.5)
        before = [wanted_seconds([process.pid]) for process in (busy, waiting)]
        time.sleep(2)
        after = [wanted_seconds([process.pid]) for process in (busy, waiting)]
        assert after[0] - before[0] > 0.3  # 2 s, less a wait that has not ended yet
        assert after[1] - before[1] < 0.1
    finally:
        for process in (busy, waiting):
            for child in psutil.Process(process.pid).children():
                child.kill()
            process.kill()
            process.wait()


def test_a_stopped_rank_is_named_by_the_first_that_could_write_and_killed_at_the_end(
    tmp_path, monkeypatch, neighbour
):
    peers = [this_process(0), peer_of(neighbour)]
    neighbour.send_signal(signal.SIGSTOP)
    settings = {"stuck_after_seconds": 0.2, "end_after_seconds": 4.0}
    watching = Watching(tmp_path, monkeypatch, peers, **settings)
    with watching.watchdog:
        watching.reach(9)
        watching.wait_for(f"step 9: no stacks of rank 1, which (process {neighbour.pid}) is stop")
        assert neighbour.poll() is None
        watching.wait_for("ending the job (watchdog.end_after_seconds=4)")
    assert neighbour.wait(60) == -signal.SIGKILL


def test_a_rank_that_could_write_is_not_named(tmp_path, monkeypatch, neighbour):
    watching = Watching(
        tmp_path, monkeypatch, [this_process(0), peer_of(neighbour)], stuck_after_seconds=1.0
    )
    (tmp_path / "stuck").mkdir()
    with watching.watchdog:
        watching.reach(9)
        time.sleep(0.05)  # the clock of the file system lags by up to a tick
        (tmp_path / "stuck/step_00000008_rank_1.txt").write_text("its stacks")
        watching.wait_for("step 9 has taken")
        time.sleep(0.5)
        assert len(watching.said) == 1


def test_a_rank_whose_neighbour_is_gone_ends_though_no_collective_told_it(
    tmp_path, monkeypatch, neighbour
):
    watching = Watching(tmp_path, monkeypatch, [this_process(0), peer_of(neighbour)])
    with watching.watchdog:
        watching.reach(9)
        time.sleep(0.3)
        assert not watching.ended
        neighbour.kill()
        watching.wait_for(f"lost rank 1, which (process {neighbour.pid}) is gone")


@pytest.mark.ranks
def test_the_stacks_of_a_run_in_which_one_rank_is_stopped_name_it_and_the_job_ends(
    command, tmp_path
):
    folder = tmp_path / "run"
    words = command.words("--run-folder", folder, "--steps", 1000, "--evaluation.every_steps", 1000)
    words += ["--watchdog.stuck_after_seconds", "4", "--watchdog.end_after_seconds", "16"]
    launcher = two_ranks("torchrun", "tests.pretrain.stability.run_with_fault")
    process = command.start(words, launcher, FAULT="stop:1:12")
    _, errors = process.communicate(timeout=300)
    assert process.returncode != 0
    assert "rank 0: step 12 has taken" in errors
    assert "rank 0: step 12: no stacks of rank 1, which (process " in errors
    assert "is stopped (SIGSTOP or Ctrl-Z; " in errors
    ended = re.search(r"rank 0: step 12 has taken (\d+) s: ending the job", errors)
    assert ended and int(ended[1]) >= 16
    assert "in train_step" in (folder / "stuck" / "step_00000012_rank_0.txt").read_text()
    assert not (folder / "stuck" / "step_00000012_rank_1.txt").exists()
