"""Variants take turns in one process, at a size at which nothing is measured."""

import json
import math
import statistics
from types import SimpleNamespace

import pytest
import torch

from benchmarks import steps
from tests.forked_command import run_module


def run(file, *words):
    """Return the results in the file, and status, output and errors of the program."""
    size = ("--shape", "4,64,32,2", "--vocabulary", "512", "--json", str(file))
    finished = run_module("benchmarks.steps", [*size, *words])
    return json.loads(file.read_text())["results"], *finished


def test_ratios_are_of_rounds_and_flops_those_of_the_blocks_that_ran(tmp_path):
    mine = "mine=--model.positions rope --layer_drop.schedule constant --layer_drop.theta_bar 0.5"
    words = ("--variants", "bert-a", "drop", mine, "wrong=--model.num_heads 3", "--rounds", "3")
    found, status, output, errors = run(tmp_path / "numbers.json", *words)
    # what fails is named, and the others go on
    assert status == 1 and "error: wrong: " in errors
    first, drop = found["variants"]["bert-a"], found["variants"]["drop"]
    ratios = [own / other for own, other in zip(drop["seconds"], first["seconds"], strict=True)]
    assert drop["time"] == pytest.approx(statistics.median(ratios))
    assert first["flops_share"] == 1 and first["time"] == 1
    assert first["tokens_per_second"] == pytest.approx(64 / first["median"])
    # the same seeds, but for the positions: the same blocks ran
    assert 0 < drop["flops_share"] < 1 and found["variants"]["mine"]["flops_share"] < 1
    assert f"{drop['flops_share']:.1%}" in output


def stand_in(losses):
    """A variant whose steps have these losses; None is a step that is skipped."""
    values = iter(losses)

    def step():
        loss = next(values)
        return SimpleNamespace(skipped=loss is None, losses=torch.tensor([loss or math.nan]))

    return step


def failures_of(**variants):
    """Compare the losses of stand-ins for variants."""
    arguments = SimpleNamespace(shape="1,1,1,1", losses=2, deadline=math.inf, json=None)
    turns = steps.Turns(arguments, SimpleNamespace(device="cpu", world_size=1, is_first=True))
    for name, losses in variants.items():
        turns.steps[name], turns.found[name] = stand_in(losses), {}
        turns.attempt(name, turns.compare_losses, name)
    return turns.failures


def test_losses_are_compared_after_as_many_updates():
    assert not failures_of(fp32=[8.0, 4.0], fp16=[None, None, 8.1, 4.0])
    assert "from the first" in failures_of(fp32=[8.0, 4.0], fp16=[8.0, 4.4])["fp16"]
    assert "overflow" in failures_of(fp32=[8.0, 4.0], fp16=[None] * 9)["fp16"]
    assert "fp16" in failures_of(fp32=[8.0, 4.0], fp16=[8.0, math.nan])
    assert "fp32" in failures_of(fp32=[8.0, 8.5])


@pytest.mark.slow("both programs from start to end")
def test_data_speed_times_the_build_and_the_loader(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"Sentence {n} of a made-up text." for n in range(20_000)))
    words = ["--corpus", text, "--rounds", "1"]
    status, output, errors = run_module("benchmarks.data_speed", words)
    assert status == 0, errors[-3000:]
    for name in ("encode_batch_fast", "build", "tokens", "words", "spans", "Hugging Face"):
        assert f"\n{name} " in output
