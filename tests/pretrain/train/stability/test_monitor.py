"""The numbers of steps, and the responses to an anomaly, on an engine that only counts."""

import math
from types import SimpleNamespace

import pytest
import torch

from data_prep.shards.format import open_shards
from pretrain.config.errors import AnomalyError, ConfigError
from pretrain.config.recipe import load_settings
from pretrain.distributed.ranks import Ranks
from pretrain.engine.engine import StepResult
from pretrain.train.stability import monitor as module
from pretrain.train.stability.history import StepHistory
from pretrain.train.stability.monitor import StabilityMonitor
from tests.pretrain.run_files import full_disk


@pytest.fixture
def build(shards, tmp_path):
    def build(*words, refuses=True):
        engine = SimpleNamespace(
            ranks=Ranks(rank=0, world_size=1, device="cpu"),
            smallest_loss_scale=None,
            scales_loss=False,
            refuses_not_finite_updates=refuses,
        )
        settings = load_settings("tiny_cpu", ["--data.shards", str(shards), *words])
        saver = SimpleNamespace(wait=lambda: None, newest=None)
        return StabilityMonitor(settings, engine, open_shards(shards), saver, tmp_path)

    return build


def see_a_spike(monitor):
    """Let a monitor see losses of 1, and at last one of 9."""
    for step in range(1, 61):
        losses = torch.full((1,), 9.0 if step == 60 else 1.0)
        monitor.history.add(step, StepResult(losses, None, skipped=False, loss_scale=1.0))
        monitor.check_step(monitor.history.next_read())


def test_a_full_disk_does_not_change_what_a_run_does(build, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module, "append_whole", full_disk)
    see_a_spike(build())
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("anomaly: step 60: the loss was 9.0000, more than")
    assert f"{tmp_path}/trouble/decisions.jsonl cannot be written: No space left" in line
    with pytest.raises(AnomalyError, match="step 60: the loss was 9.0000"):
        see_a_spike(build("--trouble.on_spike", "stop"))


def test_skipping_is_refused_where_the_optimizer_would_apply_the_update(build):
    build("--trouble.on_not_finite", "skip")
    with pytest.raises(ConfigError, match="on_not_finite=skip: this optimizer applies an update"):
        build("--trouble.on_not_finite", "skip", refuses=False)


def test_numbers_are_read_once_and_in_order():
    history = StepHistory(SimpleNamespace(ranks=Ranks(0, 1, "cpu"), scales_loss=False))
    infinite = torch.tensor(math.inf, dtype=torch.float64)
    for step, losses, norm in ((1, [5.0, 4.0], infinite), (2, [3.0, math.inf], None)):
        history.add(step, StepResult(torch.tensor(losses), norm, skipped=False, loss_scale=8.0))
    found = [list(history.next_read().values()) for _ in range(3)]
    assert found == [[1, 4.5, 0, 1, 0, 8], [2, 0, 1, 0, 0, 8], [0] * 6]
    assert not history.has_unread
