"""What benchmarks measure and report: equal work, memory, the failure of a variant."""

import json
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from pretrain.config import ds_config
from pretrain.config.errors import ConfigError
from pretrain.distributed import freed_memory, ranks

ROOT = Path(__file__).parents[2]


def test_what_layer_drop_pays_is_saved_time_over_saved_flops(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from layer_drop import paid_share, standard_error

    # Half of the FLOPs of two equal steps, for six tenths of their time.
    assert paid_share([(0.5, 1.0, 0.4), (0.7, 1.0, 0.6)]) == pytest.approx(0.8)
    assert standard_error([(0.6, 1.0, 0.5)] * 5) == pytest.approx(0)


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


def without(monkeypatch, benchmark, name):
    """Let each step take a second, but for this variant, which fails."""
    from side_by_side import Timing

    built = SimpleNamespace(engine=SimpleNamespace(execution=SimpleNamespace(attention="sdpa")))

    def ready(builders):
        return {other: built for other in builders if other != name}, {name: "OSError: no"}

    def alternate(variants, steps, **_):
        return Timing(dict.fromkeys(variants, [1.0] * steps), None)

    monkeypatch.setattr(benchmark, "ready", ready)
    monkeypatch.setattr(benchmark, "alternate", alternate)


def test_without_the_baseline_an_encoding_has_a_time_and_no_cost(monkeypatch, capsys):
    side_by_side(monkeypatch)
    import position_cost

    without(monkeypatch, position_cost, "bert-a")
    cpu = SimpleNamespace(device="cpu")
    arguments = SimpleNamespace(vocabulary=64, positions=["tupe-r"], steps=2, clock="wall")
    found = position_cost.measure((2, 64, 32, 2), cpu, arguments)
    assert found["positions"]["tupe-r"]["cost"] is None
    assert found["positions"]["tupe-r"]["median"] == 1
    assert capsys.readouterr().out.splitlines()[-1].split()[-2:] == ["-", "sdpa"]
    without(monkeypatch, position_cost, "none")
    found = position_cost.measure((2, 64, 32, 2), cpu, arguments)
    assert found["positions"]["tupe-r"]["cost"] == 0


def test_without_plain_attention_a_backend_has_a_time_and_no_ratio(monkeypatch, capsys):
    side_by_side(monkeypatch)
    import attention

    without(monkeypatch, attention, attention.PLAIN)
    arguments = SimpleNamespace(steps=2, clock="wall")
    attention.measure(16, 2, 1, "cpu", arguments)
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if "eager, tupe" in line]
    assert [row[-2] for row in rows] == ["-", "-"]


def test_a_backend_that_crashes_has_failed_and_one_without_memory_halves_the_batch(monkeypatch):
    side_by_side(monkeypatch)
    import attention

    from pretrain.model import kernel_check

    def crashes(backend, *_, **__):
        if backend == "eager":
            raise error
        return {"output": 0.0}

    without(monkeypatch, attention, "none")
    monkeypatch.setattr(kernel_check, "errors_of", crashes)
    arguments = SimpleNamespace(steps=2, clock="wall")
    error = RuntimeError("illegal memory access")
    found = attention.measure(16, 2, 1, "cpu", arguments)
    problem = "RuntimeError: illegal memory access"
    assert found["failures"]["eager, tupe-r"] == found["failures"]["eager, tupe-a"] == problem
    assert "no product of factors" in found["obstacles"]["folded, tupe-r"]
    error = torch.OutOfMemoryError("CUDA out of memory")
    with pytest.raises(torch.OutOfMemoryError):
        attention.measure(16, 2, 1, "cpu", arguments)


def test_layer_drop_is_timed_in_the_precision_of_a_run_here(monkeypatch):
    side_by_side(monkeypatch)
    from layer_drop import ds_config_of

    for stage in (0, 1, 2, 3):
        for precision, dtype in (("float32", "fp32"), ("bfloat16", "bf16"), ("float16", "fp16")):
            if (stage, dtype) != (0, "fp16"):
                config = ds_config.read_ds_config(ds_config_of(stage, precision), "cuda")
                assert ds_config.compute_type(config) == getattr(torch, precision)
                assert ds_config.zero_stage(config) == stage
    with pytest.raises(ConfigError, match="fp16, which ZeRO stage 0 has not: --stages 1 2"):
        ds_config_of(0, "float16")


def test_a_stage_of_layer_drop_that_fails_is_named_and_one_that_was_halved_says_so(
    monkeypatch, tmp_path, capsys
):
    side_by_side(monkeypatch)
    import layer_drop

    def measure(shape, stage, **_):
        if stage == 1:
            raise RuntimeError("no")
        if shape[3] > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        numbers = dict.fromkeys(("mean_blocks", "flops_saved", "paid", "standard_error"), 0.5)
        times = dict.fromkeys(("full_depth", "dropping"), benchmark.spread([1.0]))
        names = {"precision": "float32", "ranks": 1, "accumulation": 1}
        return {"shape": shape, **numbers, **times, **names}

    benchmark = side_by_side(monkeypatch)
    monkeypatch.setattr(layer_drop, "measure", measure)
    alone = SimpleNamespace(device="cpu", is_first=True)
    monkeypatch.setattr(ranks, "start_ranks", lambda: alone)
    monkeypatch.setattr(ranks, "stop_ranks", lambda: None)
    file = tmp_path / "numbers.json"
    words = ["--shapes", "4,64,32,4", "--stages", "0", "1", "--json", str(file)]
    monkeypatch.setattr(sys, "argv", ["layer_drop.py", *words])
    with pytest.raises(SystemExit, match="error: failed: "):
        layer_drop.main()
    found = json.loads(file.read_text())["results"]
    assert [row["zero_stage"] for row in found] == [0, 1]
    assert found[0]["shape"] == [4, 64, 32, 2] and found[1]["error"] == "RuntimeError: no"
    printed = capsys.readouterr().out
    assert "1 x 2 sequences a step" in printed and "4 x 32" not in printed


def test_steps_whose_wait_is_measured_are_the_same_work_as_those_timed(monkeypatch):
    side_by_side(monkeypatch)
    import host_cost
    import training_step

    def build(*_, scales, **__):
        drawn.extend(tuple(scales()) for _ in range(4 * host_cost.TOSSES))

    drawn = []
    monkeypatch.setattr(training_step, "OurStep", build)
    timing = host_cost.alternate({}, 1, device="cpu")._replace(seconds={"step": [1.0]})
    monkeypatch.setattr(host_cost, "alternate", lambda *_, **__: timing)
    cpu = SimpleNamespace(device="cpu")
    host_cost.measure((12, 64, 32, 2), cpu, SimpleNamespace(steps=1))
    cycle = drawn[: host_cost.TOSSES]
    assert drawn == cycle * 4 and len(set(cycle)) > 1
    assert host_cost.TRACED_STEPS % host_cost.TOSSES == 0
    assert host_cost.STEPS_PER_ROUND["cuda"] % host_cost.TOSSES == 0


def test_an_optimizer_that_cannot_be_built_is_left_out_with_its_reason(monkeypatch):
    side_by_side(monkeypatch)
    from precisions import VARIANTS

    from pretrain.engine.optimizers import OPTIMIZERS

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: True)
    for reason in ("nvcc is of CUDA 11.8, and torch is built for CUDA 13.0", None):
        monkeypatch.setattr(
            OPTIMIZERS["deepspeed"], "obstacle_to_build", lambda reason=reason: reason
        )
        obstacles = {name: variant.obstacle("cuda") for name, variant in VARIANTS.items()}
        for name, found in obstacles.items():
            assert found == (reason if "DeepSpeed" in name else None)


def test_two_updates_are_the_fewest_of_a_precision(monkeypatch):
    side_by_side(monkeypatch)
    import precisions
    import training_step

    class Step:
        engine = SimpleNamespace(execution=SimpleNamespace(describe=lambda: "as it is"))

        def __init__(self, *_):
            pass

        def __call__(self):
            return SimpleNamespace(losses=torch.ones(1), skipped=False, loss_scale=1.0)

    monkeypatch.setattr(training_step, "OurStep", Step)
    cpu = SimpleNamespace(device="cpu")
    found = precisions.train(None, precisions.VARIANTS[precisions.REFERENCE], cpu, 1)
    assert found["losses"] == [1.0, 1.0]


def test_a_launch_that_fails_is_named_and_the_others_are_compared(monkeypatch, tmp_path, capsys):
    side_by_side(monkeypatch)
    import scaling

    def launch(stage, ranks, arguments):
        if ranks == 2:
            raise RuntimeError("torchrun ended with status 1")
        size = dict.fromkeys(("predicted_bytes", "peak_memory_bytes", "optimizer_bytes"), 1)
        return {
            **{"zero_stage": stage, "ranks": ranks, "seconds": [1.0], "communication_share": 0.5},
            **{**size, "exchanged_bytes": {}, "predicted_optimizer_bytes": 1},
        }

    file = tmp_path / "numbers.json"
    monkeypatch.setattr(scaling, "launch", launch)
    words = ["--stages", "0", "1", "--rounds", "2", "--json", str(file)]
    monkeypatch.setattr(sys, "argv", ["scaling.py", *words])
    with pytest.raises(SystemExit, match=r"error: failed: ZeRO-0, 2 rank\(s\); ZeRO-1, 2 rank"):
        scaling.main()
    *measured, failed = json.loads(file.read_text())["results"]
    assert [(row["zero_stage"], row["ranks"]) for row in measured] == [(0, 1), (1, 1)]
    assert set(failed["failures"].values()) == {"RuntimeError: torchrun ended with status 1"}
    assert "ZeRO-1, 1 rank(s)" in capsys.readouterr().out


def test_losses_are_compared_after_the_same_number_of_updates(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from precisions import largest_difference

    assert largest_difference([10.0, 9.9], [10.0, 9.0, 8.0]) == pytest.approx(0.1)
    assert largest_difference([], [10.0]) == float("inf")
    assert largest_difference([10.0, float("nan")], [10.0, 9.0]) == float("inf")
