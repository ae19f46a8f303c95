"""Runs that continue past the end they were started for, as a user asks for it."""

import json
import shutil

import torch

from pretrain.checkpoint.folders import newest_checkpoint
from pretrain.checkpoint.format import load_weights
from pretrain.config.recipe import load_settings
from pretrain.schedules.step_plan import Schedule
from tests.pretrain.conftest import lines

DROPS = ("--layer_drop.schedule", "progressive", "--layer_drop.theta_bar", 0.4)
CONSTANT = ("--learning_rate.schedule", "warmup_constant", "--learning_rate.warmup_ratio", 0)
CONSTANT_DROPS = ("--layer_drop.schedule", "constant", "--layer_drop.theta_bar", 0.4)
DROPOUT = ("--model.dropout", 0.1, "--checkpoint.every_steps", 5)


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


def files(folder):
    return {file: file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def test_at_a_constant_rate_a_stretched_run_is_the_longer_run(command, tmp_path):
    words = (*DROPOUT, *CONSTANT, *CONSTANT_DROPS)
    straight = command.train(tmp_path / "straight", *words, "--steps", 20)
    short = command.train(tmp_path / "short", *words, "--steps", 10)
    output = continued(command, short, "--steps", 20, "--lengthen")
    assert "resuming from step 10; changed: steps (10 to 20)" in output
    assert "lengthened from 10 to 20 steps, schedules stretched\n" in output
    entropy = lines(short, "launches.jsonl")[-1]["frequency_entropy"]
    assert (loss := lines(short, "evals.jsonl")[-1]["loss"]) > entropy - 0.3
    assert f"word frequencies alone: {entropy:.4f}\n" in output
    note = f"\nnote: held-out loss {loss:.2f}, unigram entropy {entropy:.2f}: give it"
    assert f"{note} more --steps" in output
    assert_same_run(short, straight)


def test_a_request_for_more_steps_may_be_repeated_after_a_kill_and_at_the_end(command, tmp_path):
    words, longer = (*DROPOUT, *DROPS), ("--steps", 20, "--lengthen")
    run = command.train(tmp_path / "run", *words, "--steps", 10)
    continued(command, run, *longer)
    once = shutil.copytree(run, tmp_path / "once")
    (run / "result.json").unlink()
    shutil.rmtree(run / "checkpoints/step_00000020")
    output = continued(command, run, *longer)
    assert "resuming from step 15" in output and "--lengthen has no effect" in output
    schedule = Schedule(load_settings(run), 1)
    for row in (row for row in lines(run, "metrics.jsonl") if row["step"] > 10):
        assert row["learning_rate"] == schedule.plan(row["step"]).learning_rate
    assert_same_run(run, once)
    before, loss = files(run), lines(run, "evals.jsonl")[-1]["loss"]
    assert continued(command, run, *longer).splitlines()[-2:] == [
        f"{run} is finished already: 20 steps, held-out loss {loss:.4f}; nothing to do",
        f"to lengthen it: tupelo train {run} --resume --steps N --lengthen",
    ]
    assert files(run) == before
