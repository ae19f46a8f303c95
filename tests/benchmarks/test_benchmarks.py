"""Every benchmark runs to its end, at a size at which it measures nothing, and writes numbers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SMALL = "2,64,32,2"


def run(tmp_path, program, *words):
    file = tmp_path / "numbers.json"
    finished = subprocess.run(
        [sys.executable, f"benchmarks/{program}.py", "--steps", "2", "--json", str(file), *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    assert finished.returncode == 0, finished.stderr[-3000:]
    numbers = json.loads(file.read_text())
    assert numbers["environment"]["device"]
    return finished.stdout, numbers["results"]


STEP_TIME_ON_A_CPU = """
import sys
sys.path.insert(0, "benchmarks")
from pretrain.config import ds_config
ds_config.computes_in_bf16 = lambda device: {has_bf16}
import step_time
step_time.main()
"""


@pytest.mark.parametrize(("has_bf16", "precision"), [(True, "bf16"), (False, "fp32")])
def test_a_step_is_timed_against_hugging_face_in_the_precision_of_a_run(
    tmp_path, has_bf16, precision
):
    file, program = tmp_path / "numbers.json", STEP_TIME_ON_A_CPU.format(has_bf16=has_bf16)
    finished = subprocess.run(
        [sys.executable, "-c", program, "--steps", "1", "--shapes", SMALL, "--json", str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    assert finished.returncode == 0, finished.stderr[-3000:]
    [found] = json.loads(file.read_text())["results"]
    steps, theirs = found["steps"], ["Hugging Face, bf16", "Hugging Face, fp32"]
    ours = [f"Tupelo bert-a post, {precision}", f"Tupelo tupe-r pre, {precision}"]
    assert list(steps) == [*theirs, *ours] and found["precision"] == precision
    for step in steps.values():
        assert step["tokens_per_second"] == pytest.approx(2 * 32 / step["median"])
        assert 0 < step["share_of_matrix_rate"] < 1
    best = min(theirs, key=lambda name: steps[name]["median"])
    assert found["hugging_face_best"] == best
    row = next(line for line in finished.stdout.splitlines() if line.startswith(ours[0])).split()
    same = steps[f"Hugging Face, {precision}"]["median"] / steps[ours[0]]["median"]
    assert row[-4:-2] == [f"{same:.2f}", f"{steps[best]['median'] / steps[ours[0]]['median']:.2f}"]
    assert f"x HF {precision}" in finished.stdout and f"of the {precision} rate" in finished.stdout


@pytest.mark.slow("a benchmark from start to end")
def test_positions_are_timed_against_bert_a(tmp_path):
    _, [found] = run(tmp_path, "position_cost", "--shapes", SMALL, "--steps", "1")
    assert found["positions"]["bert-a"]["cost"] == 0
    assert set(found["positions"]) == {"bert-a", "tupe-a", "tupe-r"}


@pytest.mark.slow("a benchmark from start to end")
def test_layer_drop_is_compared_with_its_promise(tmp_path):
    words = ("--shapes", "4,64,32,2", "--stages", "0", "1", "--accumulation", "2")
    _, found = run(tmp_path, "layer_drop", *words, "--steps", "6")
    assert [row["zero_stage"] for row in found] == [0, 1]
    for row in found:
        assert 0 < row["mean_blocks"] < 4 and 0 < row["flops_saved"] < 1
        assert row["standard_error"] > 0 and row["accumulation"] == 2
        assert row["precision"] in ("float32", "bfloat16")


def test_attention_lists_what_works_here_and_why_the_rest_does_not(tmp_path):
    _, [found] = run(tmp_path, "attention", "--lengths", "32", "--tokens", "64", "--heads", "2")
    assert {"eager, tupe-r", "sdpa, tupe-r", "folded, tupe-a"} <= set(found["seconds"])
    assert all(error < 3e-2 for error in found["errors"].values())  # bf16
    assert "no product of factors" in found["obstacles"]["folded, tupe-r"]


@pytest.mark.slow("starts every ZeRO stage on one and two ranks")
@pytest.mark.ranks
def test_scaling_compares_bytes_and_memory_with_what_zero_promises(tmp_path):
    words = ("--shape", SMALL, "--stages", "0", "1", "--rounds", "1")
    _, found = run(tmp_path, "scaling", *words)
    assert [(row["zero_stage"], row["ranks"]) for row in found] == [(0, 1), (0, 2), (1, 1), (1, 2)]
    for row in found:
        exchanged = sum(row["exchanged_bytes"].values())
        # beside gradients and weights a norm and an overflow flag
        assert exchanged == pytest.approx(row["predicted_bytes"], rel=0.01)
        assert row["optimizer_bytes"] == pytest.approx(row["predicted_optimizer_bytes"], rel=0.01)


RELEASED = """
import sys, weakref
sys.path.insert(0, "benchmarks")
from pretrain.distributed.ranks import start_ranks
from side_by_side import release_memory
from training_step import OurStep, Shape
ranks = start_ranks()
for stage in (1, 2):
    step = OurStep(Shape(2, 64, 32, 2, 512), f"zero{stage}_fp32", ranks)
    step()
    weights = weakref.ref(next(step.engine._engine.module.parameters()))
    del step
    release_memory()
    print("held" if weights() is not None else "freed")
"""


def test_weights_that_zero_has_hooked_are_freed_before_the_next_shape():
    finished = subprocess.run(
        [sys.executable, "-c", RELEASED],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
    )
    assert finished.returncode == 0, finished.stderr[-3000:]
    assert finished.stdout.split() == ["freed", "freed"]
