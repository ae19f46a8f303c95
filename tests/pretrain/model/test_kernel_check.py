"""The check of an attention backend before a run uses it."""

import math
from functools import partial
from itertools import product

import pytest
import torch

from pretrain.config.recipe import load_settings
from pretrain.model import kernel_check
from pretrain.model.kernel_check import disagreement_with_eager
from pretrain.model.kernels.cpu_kernels import KERNEL_TYPES, obstacle_to_cpu_kernels
from pretrain.model.positions import POSITION_ENCODINGS
from pretrain.model.torch_attention import eager

BACKENDS = ["sdpa", *["fused"] * (obstacle_to_cpu_kernels() is None)]


def check(backend, positions, *words, length=32, dtype=torch.float32, **conditions):
    model = load_settings("tiny_cpu", ["--model.positions", positions, *words]).model
    return disagreement_with_eager(
        backend, model, length=length, device="cpu", dtype=dtype, **conditions
    )


@pytest.mark.parametrize(
    ("backend", "positions", "dtype"),
    [
        *product(BACKENDS, POSITION_ENCODINGS, kernel_check.BOUNDS),
        *product(["triton"], ["rope", "bert-ad"], [torch.float32]),
    ],
)
def test_a_backend_that_agrees_is_trusted_with_every_encoding(backend, positions, dtype):
    has_keys = POSITION_ENCODINGS[positions].has_relative_keys
    if backend == "fused" and (has_keys or dtype not in KERNEL_TYPES):
        pytest.skip("refused by plan_execution")
    assert check(backend, positions, dtype=dtype) is None


@pytest.mark.parametrize("positions", ["bert-ad", "tupe-a-tie-cls", "tupe-r"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_gradient_that_cancels_is_no_disagreement(backend, positions):
    words = ("--model.position_projection_bias", "true")
    assert check(backend, positions, *words, dtype=torch.bfloat16) is None


DROPOUT = ("--model.attention_dropout", "0.1")


def test_the_generators_of_a_run_are_left_as_they_are():
    torch.manual_seed(7)
    before = torch.get_rng_state()
    assert check("sdpa", "tupe-r", *DROPOUT) is None
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("backend", ["sdpa", "triton"])
def test_a_backend_is_run_with_dropout_too(monkeypatch, backend):
    assert check(backend, "tupe-r", *DROPOUT) is None
    attend = kernel_check.ATTENTION_BACKENDS[backend]

    def sabotaged(inputs):
        return attend(inputs) * (math.nan if inputs.dropout else 1.0)

    monkeypatch.setitem(kernel_check.ATTENTION_BACKENDS, backend, sabotaged)
    assert "with dropout its numbers are not finite" in check(backend, "tupe-r", *DROPOUT)


@pytest.mark.parametrize(
    ("is_wrong", "conditions"),
    [
        (lambda: torch.is_autocast_enabled("cpu"), {"autocasts": True}),
        (torch.compiler.is_compiling, {"compiles": True}),
    ],
)
def test_what_goes_wrong_only_as_the_run_is_executed_is_found_out(
    monkeypatch, is_wrong, conditions
):
    def sabotaged(inputs):
        return eager(inputs) * (1.5 if is_wrong() else 1.0)

    quick = partial(torch.compile, backend="aot_eager")  # a C++ compiler takes half a minute
    monkeypatch.setattr(kernel_check.torch, "compile", quick)
    assert check("sdpa", "tupe-r", dtype=torch.bfloat16, **conditions) is None
    monkeypatch.setitem(kernel_check.ATTENTION_BACKENDS, "sdpa", sabotaged)
    assert check("sdpa", "tupe-r", dtype=torch.bfloat16) is None
    found = check("sdpa", "tupe-r", dtype=torch.bfloat16, **conditions)
    assert found is not None and "its output differs from the reference by 5" in found
