"""Every benchmark runs to its end, at a size at which it measures nothing, and writes numbers."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pretrain.config.errors import ConfigError
from pretrain.distributed import freed_memory, ranks

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


def test_what_layer_drop_pays_is_saved_time_over_saved_flops(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from layer_drop import paid_share, standard_error

    # Half of the FLOPs of two equal steps, for six tenths of their time.
    assert paid_share([(0.5, 1.0, 0.4), (0.7, 1.0, 0.6)]) == pytest.approx(0.8)
    assert standard_error([(0.6, 1.0, 0.5)] * 5) == pytest.approx(0)


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


def side_by_side(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import side_by_side

    return side_by_side


def test_a_variant_that_fails_is_named_and_the_others_are_timed(monkeypatch):
    benchmark = side_by_side(monkeypatch)

    def broken():
        raise RuntimeError("no such kernel\nand more")

    def builder():
        return lambda: None

    variants, failures = benchmark.ready({"a": builder, "b": broken, "c": lambda: broken})
    assert list(variants) == ["a"]
    assert failures == dict.fromkeys("bc", "RuntimeError: no such kernel")
    with pytest.raises(SystemExit, match="error: failed: b; c$"):
        benchmark.fail_after_errors([{"shape": (1, 2, 3, 4), "failures": failures}])


def test_a_shape_that_does_not_fit_is_timed_with_half_the_sequences(monkeypatch):
    benchmark = side_by_side(monkeypatch)
    tried = []

    def measure(shape):
        tried.append(shape[3])
        if shape[3] > limit:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return {"shape": shape}

    limit = 2
    assert benchmark.where_it_fits((1, 64, 128, 8), measure) == {"shape": (1, 64, 128, 2)}
    limit = 0
    found = benchmark.where_it_fits((1, 64, 128, 2), measure)
    assert found["error"] == "OutOfMemoryError: CUDA out of memory"
    assert tried == [8, 4, 2, 2, 1]


def test_on_a_gpu_a_round_is_several_steps_and_one_wait(monkeypatch):
    benchmark = side_by_side(monkeypatch)
    events = []
    monkeypatch.setattr(benchmark, "wait_for", lambda device: events.append("wait"))
    monkeypatch.setitem(benchmark.CLOCKS, "counted", lambda: float(len(events)))
    variants = {name: lambda name=name: events.append(name) for name in "ab"}
    timing = benchmark.alternate(variants, 2, device="cuda", clock="counted")
    assert events == ["a", "b"] * 3 + ["wait"] + [*"aaaaa", "wait", *"bbbbb", "wait"] * 2
    assert timing.seconds == {name: [6 / 5] * 2 for name in "ab"} and timing.gpu is None


def test_samples_of_the_gpu_are_read_whatever_they_lack(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from gpu_clocks import medians_of

    found = medians_of("1980, 1980, 600.5, 700.00, 60\n1900, 1980, 690, 700, 62\n345, 19")
    assert found["clock_mhz"] == 1940 and found["power_watts"] == 645.25
    assert medians_of("1980, 1980, [N/A], [N/A], 60\n") is None


def test_the_time_of_kernels_that_overlap_counts_once(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from host_cost import covered

    assert covered([(4.0, 6.0), (0.0, 2.0), (1.0, 3.0), (4.5, 5.0)]) == 5
    assert covered([]) == 0


def test_the_attention_is_timed_with_freed_memory_kept_as_in_a_run(monkeypatch):
    side_by_side(monkeypatch)
    import attention

    kept = []
    monkeypatch.setattr(freed_memory, "keep_freed_memory", lambda: kept.append(True))
    monkeypatch.setattr(attention, "where_it_fits", lambda shape, measure: {"shape": shape})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["attention.py"])
    attention.main()
    assert kept == [True]


def test_the_processors_clock_is_offered_where_it_is_used_and_refused_on_a_gpu(monkeypatch, capsys):
    benchmark = side_by_side(monkeypatch)
    import attention
    import host_cost

    monkeypatch.setattr(sys, "argv", ["host_cost.py", "--clock", "processor"])
    with pytest.raises(SystemExit, match="2"):
        host_cost.main()
    assert "unrecognized arguments: --clock" in capsys.readouterr().err
    options = benchmark.parser("", steps=1)
    benchmark.add_clock(options)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert options.parse_args(["--clock", "processor"]).clock == "processor"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert options.parse_args([]).clock == "wall"
    monkeypatch.setattr(sys, "argv", ["attention.py", "--clock", "processor"])
    with pytest.raises(SystemExit, match="2"):
        attention.main()
    assert "--clock: a GPU computes while the processor waits" in capsys.readouterr().err


def test_what_the_user_can_fix_is_one_line(monkeypatch):
    side_by_side(monkeypatch)

    def refuse():
        raise ConfigError("rank 1 of this machine has no GPU; start fewer ranks")

    monkeypatch.setattr(ranks, "start_ranks", refuse)
    monkeypatch.setattr(sys, "argv", ["position_cost.py"])
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")  # else it is set for this process
    with pytest.raises(SystemExit, match="^error: rank 1 of this machine has no GPU; start fewer"):
        runpy.run_path(str(ROOT / "benchmarks/position_cost.py"), run_name="__main__")


def test_losses_are_compared_after_the_same_number_of_updates(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from precisions import largest_difference

    assert largest_difference([10.0, 9.9], [10.0, 9.0, 8.0]) == pytest.approx(0.1)
    assert largest_difference([], [10.0]) == float("inf")
