"""Which attention a run gets, compiled blocks, and that neither changes what is learned."""

import re

import pytest
import torch

from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.distributed.ranks import Ranks
from pretrain.engine import execution
from pretrain.engine.execution import AMPERE, Machine, build_model, plan_execution
from pretrain.model import kernel_check
from pretrain.model.attention_backends import ATTENTION_BACKENDS
from pretrain.model.kernel_check import disagreement_with_eager
from pretrain.model.kernels.cpu_kernels import obstacle_to_cpu_kernels

needs_kernels = pytest.mark.skipif(
    obstacle_to_cpu_kernels() is not None, reason=str(obstacle_to_cpu_kernels())
)
ALONE = Ranks(0, 1, "cpu")
CPU = Machine("cpu", torch.bfloat16, 1)
HOPPER = Machine("cuda", torch.bfloat16, 1, (9, 0))
BASE = ("--model.width", "768", "--model.num_heads", "12", "--model.num_layers", "2")


def settings_of(*words, length=512):
    lengths = (f"--data.sequence_length={length}", f"--model.max_sequence_length={length}")
    return load_settings("tiny_cpu", [*BASE, *lengths, *words])


@pytest.mark.parametrize(
    ("machine", "words", "length", "attention"),
    [
        (CPU, (), 512, "fused"),
        (CPU, ("--model.positions", "bert-a"), 128, "fused"),
        (CPU, ("--model.attention_dropout", "0.1"), 512, "fused"),
        (CPU, ("--engine.compile_blocks", "on"), 512, "eager"),
        (CPU, ("--engine.cpu_kernels", "off"), 512, "eager"),
        (Machine("cpu", torch.float16, 1), (), 512, "eager"),
        (CPU, ("--model.positions", "shaw"), 512, "eager"),
        (CPU, ("--model.positions", "alibi"), 512, "fused"),
        (HOPPER, ("--model.positions", "shaw"), 512, "sdpa"),
        (HOPPER, (), 512, "triton"),
        (HOPPER, (), 128, "triton"),
        (HOPPER, ("--model.positions", "bert-a"), 512, "triton"),
        (HOPPER, ("--model.attention_dropout", "0.1"), 512, "triton"),
        (HOPPER, ("--model.num_heads", "8"), 512, "sdpa"),  # 96 wide
        (Machine("cuda", torch.float16, 1, (7, 0)), (), 512, "sdpa"),  # V100
    ],
)
def test_attention_is_chosen_by_device_shape_precision_and_variant(
    monkeypatch, machine, words, length, attention
):
    monkeypatch.setattr("pretrain.engine.execution.obstacle_to_cpu_kernels", lambda: None)
    execution = plan_execution(settings_of(*words, length=length), machine)
    assert execution.attention == attention
    assert execution.reason


@pytest.mark.parametrize(
    ("machine", "attention", "words", "obstacle"),
    [
        (HOPPER, "fused", (), "made for CPUs"),
        (CPU, "fused", ("--engine.compile_blocks", "on"), "engine.compile_blocks is on"),
        (CPU, "fused", ("--engine.cpu_kernels", "off"), "engine.cpu_kernels is off"),
        (Machine("cpu", torch.float16, 1), "fused", (), "and this run in torch.float16"),
        (CPU, "triton", (), "needs an NVIDIA GPU"),
        (HOPPER, "triton", ("--model.num_heads", "8"), "heads are 96 wide"),
        (Machine("cuda", torch.float16, 1, (7, 5)), "triton", (), "this GPU has 7.5"),
        *(
            (machine, name, ("--model.positions", "shaw"), "no vectors for the keys.*'shaw' adds")
            for machine, name in ((CPU, "fused"), (HOPPER, "triton"))
        ),
    ],
)
def test_attention_that_cannot_compute_the_run_is_refused(machine, attention, words, obstacle):
    settings = settings_of("--engine.attention", attention, *words)
    with pytest.raises(ConfigError, match=f"engine.attention='{attention}': .*{obstacle}"):
        plan_execution(settings, machine)


def test_kernels_for_cpus_that_cannot_be_had_are_refused_only_where_asked_for(monkeypatch):
    monkeypatch.setattr(execution, "obstacle_to_cpu_kernels", lambda: "there is no compiler")
    planned = plan_execution(settings_of(), CPU)
    assert planned.describe() == "attention eager (no kernel of ours: there is no compiler)"
    with pytest.raises(ConfigError, match="engine.cpu_kernels='on': there is no compiler"):
        plan_execution(settings_of("--engine.cpu_kernels", "on"), CPU)
    with pytest.raises(ConfigError, match="cpu_kernels='on': it is made for CPUs"):
        plan_execution(settings_of("--engine.cpu_kernels", "on"), HOPPER)


@needs_kernels
def test_a_model_with_our_kernels_learns_the_same():
    results = {}
    for kind in ("on", "off"):
        torch.manual_seed(0)
        settings = load_settings("tiny_cpu", ["--engine.cpu_kernels", kind])
        model = build_model(settings, {}, ALONE)
        results[model.execution.describe()] = loss_and_gradients(model, [1.2, 1.0])
    names = ["attention fused (softmax and bias in one pass); loss fused"]
    names.append("attention eager (no kernel of ours: engine.cpu_kernels is off)")
    assert list(results) == names
    fused, eager = results.values()
    torch.testing.assert_close(fused, eager, rtol=1e-4, atol=1e-6)


@needs_kernels
def test_a_kernel_for_cpus_that_computes_something_else_is_not_used(monkeypatch):
    eager = ATTENTION_BACKENDS["eager"]
    monkeypatch.setitem(
        kernel_check.ATTENTION_BACKENDS, "fused", lambda *a, **k: 1.1 * eager(*a, **k)
    )
    found = build_model(load_settings("tiny_cpu", []), {}, ALONE).execution
    problem = "fused does not work on this CPU: its output differs from the reference by 1.0e-01"
    assert (found.attention, found.reason) == ("eager", problem)
    for word, advice in (("cpu_kernels=on", "set engine.cpu_kernels=off"), ("attention=fused", "")):
        with pytest.raises(ConfigError, match=f"does not work on this CPU: .*; .*{advice}"):
            build_model(load_settings("tiny_cpu", [f"--engine.{word}"]), {}, ALONE)


def test_blocks_are_compiled_on_cuda_unless_zero_takes_their_weights_away():
    assert plan_execution(settings_of(), HOPPER).compiles_blocks
    assert not plan_execution(settings_of(), CPU).compiles_blocks
    stage_3 = Machine("cuda", torch.bfloat16, 3, AMPERE)
    assert not plan_execution(settings_of(), stage_3).compiles_blocks
    with pytest.raises(ConfigError, match="compile_blocks='on' with ZeRO stage 3"):
        plan_execution(settings_of("--engine.compile_blocks", "on"), stage_3)


def loss_and_gradients(model, scales):
    ids, places = torch.arange(64).view(2, 32) % 50 + 5, torch.tensor([3, 40])
    loss = model(ids, places, ids.view(-1)[places], scales)
    return loss, torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda output: output * 1.2, "its output differs from the reference by 2.0e-01"),
        (lambda output: output * torch.nan, "its output differs from the reference by nan"),
        (lambda output: output.detach() + 0 * output, "its gradient of .* differs"),
        (lambda output: output.bogus, "AttributeError: "),
    ],
)
def test_a_kernel_that_computes_something_else_is_found_out(monkeypatch, spoil, complaint):
    settings = load_settings("tiny_cpu", ["--model.positions", "tupe-r"]).model
    eager = ATTENTION_BACKENDS["eager"]
    monkeypatch.setitem(
        kernel_check.ATTENTION_BACKENDS, "sdpa", lambda *a, **k: spoil(eager(*a, **k))
    )
    found = disagreement_with_eager("sdpa", settings, length=32, device="cpu", dtype=torch.float32)
    assert found is not None
    assert re.search(complaint, found)


@pytest.mark.parametrize(
    ("working", "attention", "reason"),
    [
        (("triton", "sdpa"), "triton", "no scores in memory"),
        (("sdpa",), "sdpa", "triton does not work on this GPU: broken"),
        ((), "eager", "triton .* broken; sdpa does not work on this GPU: broken"),
    ],
)
def test_kernels_that_fail_on_this_gpu_are_replaced(monkeypatch, working, attention, reason):
    monkeypatch.setattr(
        execution,
        "disagreement_with_eager",
        lambda name, *_, **__: None if name in working else "broken",
    )
    settings = settings_of()
    found = execution._checked(plan_execution(settings, HOPPER), settings, HOPPER, ALONE)
    assert found.attention == attention and re.match(reason, found.reason)


def test_kernels_are_checked_as_the_run_will_use_them(monkeypatch):
    seen = {}
    monkeypatch.setattr(
        execution, "disagreement_with_eager", lambda *_, **conditions: seen.update(conditions)
    )
    config = {"torch_autocast": {"enabled": True, "dtype": "bfloat16"}}
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    machine, settings = execution.this_machine(config, "cuda"), settings_of()
    execution._checked(plan_execution(settings, machine), settings, machine, ALONE)
    assert seen["dtype"] is torch.bfloat16 and seen["autocasts"] and seen["compiles"]
    half = execution.this_machine({"fp16": {"enabled": True}}, "cuda")
    assert not half.autocasts and half.dtype is torch.float16


@pytest.mark.parametrize("words", [(), ("--engine.attention", "sdpa")])
def test_a_gpu_without_a_compiler_still_has_torchs_attention(monkeypatch, words):
    """Compiled, it would fail too: it is checked as the run will use it, after the trial."""

    def disagreement(name, *_, compiles, **__):
        return None if name == "sdpa" and not compiles else "no gcc"

    monkeypatch.setattr(execution, "disagreement_with_eager", disagreement)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    found = build_model(settings_of(*words), {}, Ranks(0, 1, "cuda")).execution
    assert (found.attention, found.compiles_blocks) == ("sdpa", False)
    assert found.compile_problem == "no gcc"
