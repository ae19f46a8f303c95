"""Steps that are measured are steps of training."""

from types import SimpleNamespace

import pytest
import torch

from data_prep.shards.format import open_shards
from pretrain.config.recipe import load_settings
from pretrain.data.batches import Place, TrainingBatches
from pretrain.distributed.hardware import PeakFlops
from pretrain.distributed.ranks import Ranks
from pretrain.engine.engine import StepResult
from pretrain.engine.micro_batches import RandomBatches
from pretrain.schedules.layer_drop import scales_of_step
from pretrain.train import measured_steps as module
from pretrain.train.measured_steps import MeasuredSteps

ONE_RANK = Ranks(rank=0, world_size=1, device="cpu")


class CountingEngine:
    """Takes steps of 0.2 seconds on a clock of its own; the first one takes ten."""

    micro_batches = SimpleNamespace(of=lambda settings: settings)

    def __init__(self):
        self.now, self.rates, self.kept, self.batches, self.waits = 0.0, [], [], 0, 0

    def train_step(self, micro_batches, learning_rate):
        self.now += 0.2 if self.rates else 10
        for _, scales in micro_batches:
            self.batches += 1
            self.kept.append(sum(scale != 0 for scale in scales))
        self.rates.append(learning_rate)
        return StepResult(torch.ones(2), gradient_norm=None, skipped=False, loss_scale=1.0)

    def synchronize(self):
        self.waits += 1

    def mean_over_ranks(self, values):
        return values.tolist()


@pytest.fixture
def counting(monkeypatch):
    """Return a function that measures settings on an engine that counts."""

    def build(words):
        engine = CountingEngine()
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: engine.now))
        monkeypatch.setattr(module, "build_engine", lambda *_: engine)
        monkeypatch.setattr(module, "existing_shards", lambda _: None)
        monkeypatch.setattr(module, "peak_flops", lambda *_: PeakFlops(1e9, "a guess"))
        return MeasuredSteps(load_settings("tiny_cpu", list(words)), ONE_RANK), engine

    return build


def test_steps_are_timed_together_after_those_that_do_not_count(counting):
    steps, engine = counting([])
    count, metrics = steps.metrics_of_seconds(30)
    assert count == 150  # after two: ten seconds are more than a tenth of thirty
    assert metrics["tokens_per_second"] == pytest.approx(8 * 32 / 0.2)
    assert engine.waits == 2 + 1  # never within
    assert set(engine.rates) == {0.0}
    assert engine.batches == 2 * len(engine.rates) == 2 * 152


def test_the_drop_masks_of_the_measured_steps_are_real_ones(counting):
    words = ["--layer_drop.schedule", "constant", "--layer_drop.theta_bar", "0.4"]
    steps, engine = counting(words)
    _, metrics = steps.metrics_of_seconds(30)
    settings = load_settings("tiny_cpu", words)
    kept = [
        sum(scale != 0 for scale in scales)
        for step in range(152)
        for scales in scales_of_step(step, settings, theta=0.4, count=2)
    ]
    assert engine.kept == kept
    assert sum(metrics["keep_rates"]) == pytest.approx(sum(kept[4:]) / len(kept[4:]))
    assert sum(metrics["keep_rates"]) == pytest.approx(0.7 + 0.4, abs=0.15)  # 4 deviations


def test_random_batches_look_like_real_ones(shards):
    settings = load_settings("tiny_cpu", ["--data.shards", str(shards)])
    real = TrainingBatches(open_shards(shards), settings, Place(4, 0, 1))[0]
    made = RandomBatches(settings, 4)
    for number in range(5):
        for ours, theirs in zip(made[number], real, strict=True):
            assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
        batch = made[number]
        assert batch.ids_BS.min() >= 0 and batch.ids_BS.max() < settings.model.vocabulary_size
        rows = batch.positions_M.view(4, -1) // 32
        assert (rows == rows[:, :1]).all() and rows[:, 0].tolist() == [0, 1, 2, 3]
        assert len(set(batch.positions_M.tolist())) == batch.positions_M.numel()
    assert not (made[0].ids_BS == made[1].ids_BS).all()
