import itertools
import math
from types import SimpleNamespace

import pytest
import torch

from data_prep.shards.format import open_shards
from pretrain.config.recipe import load_settings
from pretrain.data.batches import Place, TrainingBatches
from pretrain.distributed.ranks import Ranks
from pretrain.engine.engine import StepResult
from pretrain.engine.launch import checked_settings
from pretrain.schedules.layer_drop import keep_probabilities, scales_of_step, theta_at
from pretrain.schedules.run_thetas import last_theta, mean_theta
from pretrain.train import benchmark as speed
from pretrain.train.benchmark import MeasuredSteps, RandomBatches, measure_speed


class CountingEngine:
    """Takes steps of 0.2 seconds on a clock of its own; the first one takes ten."""

    ranks = Ranks(rank=0, world_size=1, device="cpu")

    def __init__(self, monkeypatch):
        self.now, self.rates, self.kept, self.synchronized = 0.0, [], [], 0
        monkeypatch.setattr(speed, "time", SimpleNamespace(perf_counter=lambda: self.now))

    def train_step(self, micro_batches, learning_rate):
        self.now += 0.2 if self.rates else 10
        self.kept += [sum(scale != 0 for scale in scales) for _, scales in micro_batches]
        self.rates.append(learning_rate)
        return StepResult(torch.ones(2), gradient_norm=None, skipped=False, loss_scale=1.0)

    def synchronize(self):
        self.synchronized += 1


def test_steps_are_timed_in_intervals_after_those_that_do_not_count(monkeypatch):
    engine = CountingEngine(monkeypatch)
    settings = load_settings("tiny_cpu", [])
    batches = itertools.count()
    found = measure_speed(MeasuredSteps(engine, batches, settings, 1.0), seconds=30)
    assert found.uncounted_steps == 2  # ten seconds are more than a tenth of thirty
    assert found.steps == (5,) * 30  # a second each
    assert found.seconds_per_step == pytest.approx(0.2)
    assert found.quartiles == pytest.approx((0.2, 0.2, 0.2))
    assert engine.synchronized == 2 + 30  # once an interval, never within
    assert set(engine.rates) == {0.0}
    assert next(batches) == 2 * len(engine.rates)  # two micro-batches a step, all of them used


def test_the_coins_of_the_measured_steps_are_real_ones(monkeypatch):
    engine = CountingEngine(monkeypatch)
    settings = load_settings("tiny_cpu", ["--layer_drop.schedule", "progressive"])
    steps = MeasuredSteps(engine, itertools.count(), settings, 0.4)
    found = measure_speed(steps, seconds=30)
    coins = [
        sum(scale != 0 for scale in scales)
        for step in range(152)
        for scales in scales_of_step(step, settings, theta=0.4, count=2)
    ]
    assert engine.kept == coins
    assert found.blocks == pytest.approx(sum(coins[4:]) / len(coins[4:]))
    assert found.blocks == pytest.approx(0.7 + 0.4, abs=0.15)  # 4 deviations of 300 passes


def test_steps_of_few_rows_are_measured_where_depth_has_grown_and_no_row_is_dropped(monkeypatch):
    """`profile` measures the end of a run, whose earlier steps drop rows."""
    words = ["--model.num_layers", "12", "--layer_drop.schedule", "reverse"]
    settings = load_settings("tiny_cpu", [*words, "--layer_drop.draw_per", "sequence"])
    checked_settings(settings, CountingEngine.ranks)  # the run trains
    theta = last_theta(settings)
    steps = MeasuredSteps(CountingEngine(monkeypatch), itertools.count(), settings, theta)
    assert steps.settings.layer_drop.theta_bar == theta < 1


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--layer_drop.schedule", "constant", "--layer_drop.theta_bar", "0.3"],
        ["--layer_drop.schedule", "progressive", "--layer_drop.theta_bar", "0.3"],
        ["--layer_drop.schedule", "progressive", "--layer_drop.gamma", "0.002"],
        ["--layer_drop.schedule", "reverse"],
        ["--layer_drop.schedule", "linear_up", "--layer_drop.theta_bar", "0.3"],
        ["--layer_drop.schedule", "linear_down"],
        ["--layer_drop.schedule", "stages", "--layer_drop.stages", "0.5,0.9,0.7"],
    ],
)
def test_the_mean_theta_is_that_of_every_step(words):
    settings = load_settings("tiny_cpu", ["--steps", "5000", *words])
    thetas = [theta_at(step, settings.layer_drop, 5000) for step in range(5000)]
    # a step's theta is that of its beginning, the mean that of its middle
    assert mean_theta(settings) == pytest.approx(sum(thetas) / 5000, abs=2e-4)
    blocks = [sum(keep_probabilities(theta, 12, settings.layer_drop)) for theta in thetas]
    at_mean = sum(keep_probabilities(mean_theta(settings), 12, settings.layer_drop))
    assert at_mean == pytest.approx(sum(blocks) / 5000, abs=2e-3)


def test_the_mean_theta_of_the_papers_schedule_is_its_integral():
    settings = load_settings("pld_base")
    integral = 0.5 + 0.5 * (1 - math.exp(-100)) / 100
    assert mean_theta(settings) == pytest.approx(integral, abs=1e-5)


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
