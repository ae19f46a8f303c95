"""Runs that continue past the end they were started for, as a user asks for it."""

import json
import shutil

import pytest
import torch

from pretrain.checkpoint.folders import newest_checkpoint
from pretrain.checkpoint.format import load_weights
from tests.pretrain.conftest import lines

DROPS = ("--layer_drop.schedule", "progressive", "--layer_drop.theta_bar", 0.4)
CONSTANT = ("--learning_rate.schedule", "warmup_constant", "--learning_rate.warmup_ratio", 0)
CONSTANT_DROPS = ("--layer_drop.schedule", "constant", "--layer_drop.theta_bar", 0.4)
DROPOUT = ("--model.dropout", 0.1, "--checkpoint.every_steps", 10)


def continued(command, run, *words):
    """Resume a run and return what is printed."""
    status, output, errors = command.run(["train", str(run), "--resume", *map(str, words)])
    assert status == 0, errors[-3000:]
    return output


def assert_same_run(ours, theirs):
    """Compare all that does not come from a clock, bit for bit."""
    for name in ("metrics.jsonl", "evals.jsonl"):
        assert lines(ours, name) == lines(theirs, name)
    results = [json.loads((run / "result.json").read_text()) for run in (ours, theirs)]
    for result in results:
        del result["training_seconds"]
    assert results[0] == results[1]
    weights = [load_weights(newest_checkpoint(run)) for run in (ours, theirs)]
    assert all(torch.equal(weights[0][name], found) for name, found in weights[1].items())


@pytest.fixture(scope="module")
def finished(command, tmp_path_factory):
    """A finished run of 20 steps with dropout and layer drop."""
    return command.train(tmp_path_factory.mktemp("runs") / "finished", *DROPOUT, *DROPS)


@pytest.fixture
def run(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


def files(folder):
    return {file: file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def test_resuming_a_finished_run_says_so_and_changes_nothing(command, run):
    before = files(run)
    said = continued(command, run).splitlines()[1:]
    loss = lines(run, "evals.jsonl")[-1]["loss"]
    assert said == [
        f"{run} is finished already: 20 steps, held-out loss {loss:.4f}; nothing to do",
        f"to lengthen it: tupelo train {run} --resume --steps N --lengthen stretch (or restart)",
    ]
    again = continued(command, run, "--steps", 20, "--lengthen", "restart")
    assert again.splitlines()[-2:] == said
    assert files(run) == before


def test_at_a_constant_rate_a_stretched_run_is_the_longer_run(command, tmp_path):
    words = (*DROPOUT, *CONSTANT, *CONSTANT_DROPS)
    straight = command.train(tmp_path / "straight", *words, "--steps", 40)
    short = command.train(tmp_path / "short", *words, "--steps", 20)
    output = continued(command, short, "--steps", 40, "--lengthen", "stretch")
    assert "resuming from step 20; changed: steps (20 to 40)" in output
    assert "lengthened from 20 to 40 steps, schedules stretched\n" in output
    assert_same_run(short, straight)


def test_a_restarted_run_is_the_run_that_was_planned_with_this_restart(command, run, tmp_path):
    words = (*DROPOUT, *DROPS, "--steps", 40, "--restarts_after", 20)
    planned = command.train(tmp_path / "planned", *words)
    output = continued(command, run, "--steps", 40, "--lengthen", "restart")
    assert "schedules restarted\n" in output
    assert_same_run(run, planned)
    assert (run / "run.json").read_text() == (planned / "run.json").read_text()


def test_a_request_that_is_repeated_after_a_kill_changes_nothing_more(command, run):
    continued(command, run, "--steps", 40, "--lengthen", "restart")
    (run / "result.json").unlink()
    shutil.rmtree(run / "checkpoints/step_00000040")
    output = continued(command, run, "--steps", 40, "--lengthen", "restart")
    assert "resuming from step 30" in output and "--lengthen has no effect" in output
    assert json.loads((run / "run.json").read_text())["restarts_after"] == [20]
