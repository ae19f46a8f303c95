"""The check of an attention backend before a run uses it."""

import pytest
import torch

from pretrain.config.recipe import load_settings
from pretrain.kernels.cpu_kernels import obstacle_to_cpu_kernels
from pretrain.model import kernel_check
from pretrain.model.kernel_check import disagreement_with_eager
from pretrain.model.positions import POSITION_ENCODINGS, PositionTerms

BACKENDS = ["sdpa", *["fused"] * (obstacle_to_cpu_kernels() is None)]


def check(backend, positions, *words, dtype=torch.float32):
    model = load_settings("tiny_cpu", ["--model.positions", positions, *words]).model
    return disagreement_with_eager(backend, model, length=32, device="cpu", dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("positions", list(POSITION_ENCODINGS))
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_backend_that_agrees_is_trusted_with_every_encoding(backend, positions, dtype):
    assert check(backend, positions, dtype=dtype) is None


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_gradient_that_cancels_is_no_disagreement(backend):
    words = ("--model.position_projection_bias", "true")
    assert check(backend, "bert-ad", *words, dtype=torch.bfloat16) is None


@pytest.mark.parametrize(("positions", "agrees"), [("rope", False), ("bert-a", True)])
def test_the_check_covers_what_is_done_to_queries_and_keys(monkeypatch, positions, agrees):
    transform, calls = kernel_check.transform_query_key, []

    def only_for_the_reference(q_BNSH, k_BNSH, terms):
        calls.append(terms)
        return transform(q_BNSH, k_BNSH, PositionTerms() if len(calls) == 1 else terms)

    monkeypatch.setattr(kernel_check, "transform_query_key", only_for_the_reference)
    assert (check("sdpa", positions) is None) == agrees
    assert len(calls) == 2
