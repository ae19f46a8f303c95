"""The last steps of a run, and the rows of any step."""

import math

import numpy
import pytest
import torch

from data_prep.masking import IGNORED
from data_prep.shards.format import open_shards
from pretrain.config.recipe import load_settings
from pretrain.data.batches import Place, TrainingBatches
from pretrain.engine.engine import StepResult
from pretrain.schedules.step_plan import StepPlan
from pretrain.stability.history import KEPT_STEPS, StepHistory, rows_of_step


def result(losses, norm):
    return StepResult(torch.tensor(losses), norm, skipped=False, loss_scale=8.0)


def plan(step):
    scales = [[0.0, 2.0], [1.0, 1.0]]
    return StepPlan(step, learning_rate=0.1, theta=0.5, branch_scales=scales, seed=0)


def add(history, step, found):
    history.add(plan(step), found)


def test_numbers_are_read_once_and_in_order():
    history = StepHistory("cpu")
    assert history.next_read() is None
    add(history, 1, result([5.0, 4.0], torch.tensor(2.0, dtype=torch.float64)))
    add(history, 2, result([3.0, math.inf], None))
    one, two = history.next_read(), history.next_read()
    assert (one.step, one.losses, one.gradient_norm) == (1, [5.0, 4.0], 2.0)
    assert one.kept_blocks == [[1], [0, 1]] and one.loss_scale == 8.0
    assert (two.step, two.losses, two.gradient_norm) == (2, [3.0, math.inf], None)
    assert history.next_read() is None and history.steps() == [one, two]


def test_only_the_last_steps_are_kept():
    history = StepHistory("cpu")
    for step in range(1, 101):
        add(history, step, result([1.0], 1.0))
        history.next_read()
    assert [stats.step for stats in history.steps()] == list(range(101 - KEPT_STEPS, 101))
    assert history.plan(101 - KEPT_STEPS) == plan(101 - KEPT_STEPS)
    history.forget()
    assert history.steps() == [] and not history.has_unread


@pytest.mark.parametrize("step", [1, 30, 80])
def test_the_rows_of_a_step_are_those_that_its_batches_were_made_of(shards, step):
    """Read back from the files that are named, against what the ranks are given."""
    settings = load_settings("tiny_cpu", ["--data.shards", str(shards)])
    opened = open_shards(shards)
    found = rows_of_step(step, opened, settings)
    assert found["samples"] == [8 * (step - 1), 8 * step - 1]
    files = [record.file for record in opened.manifest.splits["train"].shards]
    split = opened.split("train")
    stored = [list(split.read_in_order([index], max_rows=10**6)) for index in range(len(files))]
    read = [
        stored[files.index(file)][0][row]
        for file, row in zip(found["file"], found["row_in_file"], strict=True)
    ]
    assert len(set(found["epoch"])) <= 2
    by_place = []
    for index in range(2):  # micro-batches of 2 rows, on 2 ranks
        for rank in range(2):
            batches = TrainingBatches(opened, settings, Place(2, rank=rank, world_size=2))
            by_place.append(batches[2 * (step - 1) + index])
    ids = torch.cat([batch.ids_BS for batch in by_place]).numpy()
    changed = (ids != numpy.array(read)).mean()
    assert 0 < changed < 0.2  # the masked tokens
    for place, batch in enumerate(by_place):
        rows = torch.tensor(numpy.array(read[2 * place : 2 * place + 2]).astype(numpy.int64))
        counted = batch.labels_M.ne(IGNORED)
        labels = batch.labels_M[counted]
        assert torch.equal(rows.view(-1)[batch.positions_M][counted], labels)
