"""The responses to an anomaly, on an engine that only counts."""

import errno
import os
import time
from types import SimpleNamespace

import pytest
import torch

from data_prep.shards.format import open_shards
from pretrain.config.errors import AnomalyError
from pretrain.config.recipe import load_settings
from pretrain.distributed.ranks import Ranks
from pretrain.engine.engine import StepResult
from pretrain.profiling.stopwatch import Stopwatch
from pretrain.schedules.step_plan import Schedule
from pretrain.stability import journal
from pretrain.stability.monitor import StabilityMonitor

SPIKE_STEP, REPLAY_SECONDS = 60, 0.1
REWIND = journal.Decision("rewind", "spike", SPIKE_STEP, SPIKE_STEP, 0)
ENGINE = SimpleNamespace(
    ranks=Ranks(rank=0, world_size=1, device="cpu"),
    smallest_loss_scale=None,
    scales_loss=False,
    refuses_not_finite_updates=True,
    loss_scale=lambda: 1.0,
    synchronize=lambda: None,
)


@pytest.fixture
def watched(shards, tmp_path, monkeypatch):
    """Return a function that lets a monitor see losses of 1, and at last one of 9."""

    def replay(*_):
        time.sleep(REPLAY_SECONDS)
        return {"first_not_finite": None}

    monkeypatch.setattr(StabilityMonitor, "_replay", replay)

    def watch(*words):
        settings = load_settings("tiny_cpu", ["--data.shards", str(shards), *words])
        saver = SimpleNamespace(wait=lambda: None)
        monitor = StabilityMonitor(
            settings, ENGINE, open_shards(shards), None, saver, tmp_path, Stopwatch()
        )
        plans = Schedule(settings, 1)
        for step in range(1, SPIKE_STEP + 1):
            losses = torch.full((1,), 9.0 if step == SPIKE_STEP else 1.0)
            result = StepResult(losses, None, skipped=False, loss_scale=1.0)
            monitor.history.add(plans.plan(step), result)
            monitor.check_step(monitor.numbers(), step)
        return monitor, plans.plan(SPIKE_STEP)

    return watch


def full_disk(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("place", ["save_text", "append_whole"])
def test_a_spike_that_is_only_recorded_does_not_end_a_run_on_a_full_disk(
    place, watched, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(journal, place, full_disk)
    watched()
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("anomaly: step 60: the loss was 9.0000, more than")
    assert line.endswith(f"cannot be recorded in {tmp_path}/trouble (No space left on device)")


@pytest.mark.parametrize("action", ["stop", "rewind"])
def test_a_run_does_not_stop_or_rewind_unrecorded_without_saying_why(
    action, watched, tmp_path, monkeypatch
):
    monkeypatch.setattr(journal, "save_text", full_disk)
    with pytest.raises(AnomalyError) as raised:
        watched("--trouble.on_spike", action)
    message = str(raised.value)
    assert message.startswith("spike at step 60: the loss was 9.0000")
    assert "(No space left on device)" in message and f"train {tmp_path} --resume" in message


def test_a_replay_that_cannot_be_recorded_ends_nothing(watched, monkeypatch, capsys):
    monitor, plan = watched()
    monitor.log.add_decision(REWIND, "of the test")
    monkeypatch.setattr(journal, "save_text", full_disk)
    capsys.readouterr()
    monitor.replay_excluded(plan)
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "its rows are left out; everything in it was finite this time; it cannot be" in line


def test_recording_and_replays_are_not_seconds_of_training(watched):
    started = time.perf_counter()
    monitor, plan = watched()
    monitor.log.add_decision(REWIND, "of the test")
    monitor.replay_excluded(plan)
    passed = time.perf_counter() - started
    assert passed - monitor.clock.seconds() > 2 * REPLAY_SECONDS
