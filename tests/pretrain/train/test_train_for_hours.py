"""Whole runs with a budget of time, as a user starts them."""

import itertools
import json

import pytest

from pretrain.checkpoint.folders import checkpoint_folder
from pretrain.checkpoint.format import Checkpoint
from pretrain.config.recipe import load_settings
from pretrain.schedules.learning_rate import learning_rate_at
from tests.forked_command import start_module
from tests.pretrain.conftest import lines

HOURS = 0.002
PEAK = 1e-3
OFTEN = ("--log_every_steps", 10, "--evaluation.every_steps", 100, "--checkpoint.every_steps", 20)
DROPS = ("--layer_drop.schedule", "progressive")


def assert_ended_on_time(folder):
    """Check that the run took its time, and that its learning rate was annealed."""
    result = json.loads((folder / "result.json").read_text())
    metrics = lines(folder, "metrics.jsonl", without=())
    # within two steps, and what the last line took, since a busy machine may stall in it
    left = 2 * result["training_seconds"] / result["step"] + 1 + intervals(metrics)[-1]
    assert abs(result["training_seconds"] - 3600 * HOURS) < left
    # The rate falls linearly with the time after the warm-up, a tenth of it or less.
    highest = PEAK * left / (0.9 * 3600 * HOURS)
    assert result["step"] > 20 and 0 <= result["final_learning_rate"] < highest
    evaluations = lines(folder, "evals.jsonl")
    assert metrics[-1]["step"] == evaluations[-1]["step"] == result["step"]
    assert metrics[-1]["learning_rate"] == result["final_learning_rate"]
    assert (folder / "checkpoints" / f"step_{result['step']:08d}").is_dir()
    return result, metrics


def intervals(metrics):
    """Return the seconds of training between lines."""
    seconds = [row["training_seconds"] for row in metrics]
    return [later - earlier for earlier, later in itertools.pairwise(seconds)]


def test_a_run_of_given_hours_ends_on_time_with_its_rate_annealed(command, tmp_path):
    folder = tmp_path / "run"
    words = command.words("--run-folder", folder, "--hours", HOURS, *OFTEN, *DROPS)
    status, output, errors = command.run(words)
    assert status == 0 and "give it more --hours" in output, errors
    _, metrics = assert_ended_on_time(folder)
    rates = [row["learning_rate"] for row in metrics]
    top = rates.index(max(rates))
    fallen = max(intervals(metrics)) / (0.9 * 3600 * HOURS)  # since a line that stalled at the peak
    assert rates[top] == pytest.approx(PEAK, rel=0.2 + fallen)
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert [row["theta"] for row in metrics][-1] == pytest.approx(0.5, abs=1e-3)


@pytest.mark.slow("waits for hours that are seconds, twice")
def test_a_killed_and_resumed_run_spends_its_hours_once(command, tmp_path):
    folder = tmp_path / "run"
    words = command.words("--run-folder", folder, "--hours", HOURS, *OFTEN)
    started = start_module("pretrain", words, files=[(tmp_path / "out", tmp_path / "errors")])
    started.wait_until((folder / "checkpoints/step_00000020").exists)
    assert started.kill() and not (folder / "result.json").exists()
    status, _, errors = command.run(["train", str(folder), "--resume"])
    assert status == 0, errors[-3000:]
    result, metrics = assert_ended_on_time(folder)
    resumed_from = lines(folder, "launches.jsonl")[1]["resumed_from"]
    assert 20 <= resumed_from < result["step"]
    seconds = [row["training_seconds"] for row in lines(folder, "metrics.jsonl", without=())]
    assert seconds == sorted(seconds)
    # The first rate after the checkpoint is the one that its horizon says.
    content = Checkpoint(checkpoint_folder(folder, resumed_from)).content
    stretch = content.progress["horizon"]
    settings = load_settings(folder)
    step = next(row["step"] for row in metrics if row["step"] > resumed_from)
    rate = learning_rate_at(
        stretch["position"] + (step - 1 - resumed_from) * stretch["stride"],
        settings.learning_rate,
        settings.steps,
        stride=stretch["stride"],
    )
    found = next(row["learning_rate"] for row in metrics if row["step"] == step)
    assert found == pytest.approx(rate, rel=1e-9)
    status, _, errors = command.run(["train", str(folder), "--resume", "--hours", "1"])
    assert status == 1 and "other settings: hours (was 0.002, is 1.0)" in errors


@pytest.mark.slow("two ranks end like one")
@pytest.mark.ranks
def test_two_ranks_agree_on_the_end(command, tmp_path):
    """They would wait for each other for ever if one of them took another step."""
    words = ("--hours", HOURS, "--batch.micro_sequences", 4, *OFTEN, *DROPS)
    folder = command.train(tmp_path / "run", *words, ranks=2)
    assert lines(folder, "launches.jsonl")[0]["world_size"] == 2
    assert_ended_on_time(folder)
