"""Metrics against numbers worked out by hand for the recipe tiny_cpu."""

import dataclasses
import itertools
import json
import math

import pytest
import torch

from pretrain.config.recipe import load_settings
from pretrain.distributed.hardware import PeakFlops
from pretrain.engine.engine import StepResult
from pretrain.schedules.layer_drop import keep_probabilities
from pretrain.train.recording.progress import Progress
from pretrain.train.sweeps.budget import expected_flops

RATE = PeakFlops(1e9, "of the tests")
EVERYTHING = [[1.0, 1.0], [1.0, 1.0]]

# 6 FLOPs a multiply-add, forward and backward. Of a row of 32 tokens and a block: 4 projections of
# width 32, two of 32 x 128, scores and mixing over 32 positions.
ROW_AND_BLOCK = 6 * 32 * (4 * 32 * 32 + 2 * 32 * 128 + 2 * 32 * 32)
# The last block that runs computes the last projection and the two wide ones for 5 positions only.
LEFT_OUT_OF_ROW = 6 * (32 - 5) * (32 * 32 + 2 * 32 * 128)
# 8 rows with 5 predictions each: a square projection and the vocabulary of 1024.
HEAD = 6 * 8 * 5 * (32 * 32 + 32 * 1024)
# TUPE-R, in each of two micro-batches: 34 positions through two projections, and 32 x 32 products.
POSITIONS = 2 * 6 * (2 * 34 * 32 * 32 + 32 * 32 * 32)


def step_flops(*blocks):
    """Return the FLOPs of a step in whose micro-batches of 4 rows so many blocks run."""
    of_blocks = sum(4 * (n * ROW_AND_BLOCK - (n > 0) * LEFT_OUT_OF_ROW) for n in blocks)
    return of_blocks + HEAD + POSITIONS


FULL_STEP = step_flops(2, 2)


def planned(counted, scales=EVERYTHING):
    return dataclasses.replace(counted.next_plan(), branch_scales=scales)


def one_step(counted, scales=EVERYTHING, norm=1.0):
    result = StepResult(torch.ones(1), torch.tensor(norm), skipped=False, loss_scale=1.0)
    counted.add_step(planned(counted, scales), result)


def metrics(counted):
    counted.fetch_losses(lambda losses: losses.tolist())
    return counted.take_metrics(counted.schedule.plan(counted.step), RATE, 12345)


def test_utilisation_is_the_flops_that_ran_over_those_that_could_have():
    counted = Progress(load_settings("tiny_cpu", []), 1)
    one_step(counted)
    one_step(counted, norm=0.25)
    counted.add_seconds(4.0)
    row = metrics(counted)
    assert row["gradient_norm"] == 0.25  # of the last step
    assert row["model_flops_utilisation"] == pytest.approx(2 * FULL_STEP / (4.0 * 1e9))
    assert row["tokens_per_second"] == 2 * 8 * 32 / 4.0
    assert row["samples_per_second"] == 2 * 8 / 4.0
    assert row["peak_memory_bytes"] == 12345


SCHEDULES = {
    "none": [],
    "constant": ["--layer_drop.theta_bar", "0.3"],
    "progressive": ["--layer_drop.theta_bar", "0.2", "--layer_drop.gamma", "0.05"],
    "reverse": [],
    "linear_up": ["--layer_drop.theta_bar", "0.2"],
    "linear_down": [],
    "stages": [],
}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_expected_flops_of_a_run_are_those_of_all_drop_masks_of_all_its_steps(schedule):
    """Every pattern of blocks that run, weighted by its probability, step by step."""
    words = ["--layer_drop.schedule", schedule, *SCHEDULES[schedule]]
    settings = load_settings("tiny_cpu", ["--model.num_layers", "4", *words])
    counted, total = Progress(settings, 1), 0.0
    for step in range(1, settings.steps + 1):
        theta = counted.schedule.plan(step).theta
        kept = keep_probabilities(theta, 4, settings.layer_drop)
        for pattern in itertools.product((False, True), repeat=4):
            chances = (p if ran else 1 - p for p, ran in zip(kept, pattern, strict=True))
            total += math.prod(chances) * step_flops(sum(pattern), sum(pattern))
    # Each of the two passes of a step.
    assert counted.mean_pass_flops() * 2 * settings.steps == pytest.approx(total, rel=1e-12)
    assert expected_flops(settings) == pytest.approx(total, rel=1e-12)


def test_the_ranks_of_a_run_could_compute_side_by_side():
    counted = Progress(load_settings("tiny_cpu", ["--batch.micro_sequences", "4"]), 2)
    one_step(counted, EVERYTHING[:1])
    counted.add_seconds(1.0)
    # Each rank computes the position bias of its own micro-batch: as much as one rank in two.
    assert metrics(counted)["model_flops_utilisation"] == pytest.approx(FULL_STEP / 2e9)


def test_a_checkpoint_between_two_lines_keeps_what_was_counted():
    counted = Progress(load_settings("tiny_cpu", []), 1)
    one_step(counted)
    counted.add_seconds(4.0)
    resumed = Progress(counted.settings, 1)
    resumed.load(json.loads(json.dumps(counted.state())))
    one_step(resumed)
    resumed.add_seconds(6.0)
    utilisation = metrics(resumed)["model_flops_utilisation"]
    assert utilisation == pytest.approx(2 * FULL_STEP / (10.0 * 1e9))


def test_a_line_is_the_same_where_the_run_was_resumed_and_only_left_steps_out_since():
    settings = load_settings("tiny_cpu", [])
    whole = Progress(settings, world_size=1)
    norm = torch.tensor(0.5)
    result = StepResult(torch.ones(1), norm, loss_scale=4.0, skipped=False)
    whole.add_step(planned(whole), result)
    whole.add_seconds(2.0)
    whole.fetch_losses(lambda losses: losses.tolist())
    whole.watch.losses += [1.0]
    whole.watch.is_spiking, whole.watch.overflows = True, 3
    resumed = Progress(settings, world_size=1)
    resumed.load(json.loads(json.dumps(whole.state())))
    assert resumed.watch == whole.watch
    for progress in (whole, resumed):
        progress.counters.left_out_steps += 1
        progress.counters.step += 1
        assert progress.counters.steps_since_log
    assert metrics(resumed) == metrics(whole)


def test_waiting_for_a_processor_is_a_share_of_the_seconds_since_the_last_line():
    counted = Progress(load_settings("tiny_cpu", []), 1)
    one_step(counted)
    counted.add_seconds(4.0, 1.0)
    assert metrics(counted)["processor_wait_share"] == pytest.approx(1 / 4)
    one_step(counted)
    counted.add_seconds(5.0)
    assert metrics(counted)["processor_wait_share"] is None
