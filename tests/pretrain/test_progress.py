import itertools
import json

import pytest
import torch

from pretrain import progress
from pretrain.engine import StepResult
from pretrain.progress import Progress, Timed, progress_bar
from pretrain.recipe import load_settings


def one_step(counted):
    result = StepResult(losses=torch.ones(1), gradient_norm=None, loss_scale=1.0, skipped=False)
    counted.add_step(result, [[1.0] * counted.settings.model.num_layers])


def test_the_time_spent_waiting_is_added_up_and_taken(monkeypatch):
    clock = itertools.count()  # each look at the clock is a second later
    monkeypatch.setattr(progress.time, "perf_counter", lambda: next(clock))
    timed = Timed(iter("abcd"))
    assert [next(timed), next(timed)] == ["a", "b"]
    assert timed.take_seconds() == 2
    assert list(timed) == ["c", "d"]
    assert timed.take_seconds() == 3  # the end is waited for too
    assert timed.take_seconds() == 0


def test_the_stall_share_covers_the_steps_since_the_last_line(tmp_path):
    counted = Progress(load_settings("tiny_cpu", []), 1)
    one_step(counted)
    counted.add_seconds(4.0, stalled=1.0)
    # A checkpoint between two lines keeps what was counted.
    (tmp_path / "state.json").write_text(json.dumps(counted.state()))
    resumed = Progress(counted.settings, 1)
    resumed.load(tmp_path / "state.json")
    one_step(resumed)
    resumed.add_seconds(6.0, stalled=2.0)
    resumed.fetch_losses(lambda losses: losses.tolist())
    assert resumed.take_metrics(0.1)["data_stall_share"] == pytest.approx(3 / 10)
    one_step(resumed)
    resumed.add_seconds(5.0, stalled=0.5)
    resumed.fetch_losses(lambda losses: losses.tolist())
    assert resumed.take_metrics(0.1)["data_stall_share"] == pytest.approx(0.5 / 5)


def test_the_bar_shows_a_total_only_where_it_is_known(capsys):
    for words, shown in (([], "| step 5/20 ["), (["--hours", "1"], "| step 5 [")):
        with progress_bar(load_settings("tiny_cpu", words), 0, shown=True) as bar:
            bar.update(5)
            bar.refresh()
        assert shown in capsys.readouterr().err
