"""The output projection with its loss, against the two written one after the other in fp64."""

import re

import pytest
import torch
import torch.nn.functional as F

from data_prep.masking import IGNORED
from pretrain.model.kernels import cross_entropy as module
from pretrain.model.kernels.cpu_kernels import KERNEL_TYPES, obstacle_to_cpu_kernels
from pretrain.model.kernels.cross_entropy import linear_cross_entropy

# elementwise rounding of each type, over sums of 300 terms
BOUNDS = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}


def case(dtype, rows=37, vocabulary=300, width=24):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(rows, width, generator=generator).to(dtype).requires_grad_()
    weight = (torch.randn(vocabulary, width, generator=generator) * 0.5).requires_grad_()
    bias = torch.randn(vocabulary, generator=generator).requires_grad_()
    labels = torch.randint(0, vocabulary, (rows,), generator=generator)
    labels[::5] = IGNORED
    return hidden, weight, bias, labels


def reference(hidden, weight, bias, labels, factor):
    copies = [tensor.detach().double().requires_grad_() for tensor in (hidden, weight, bias)]
    logits = F.linear(*copies)
    loss = F.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum")
    return loss, torch.autograd.grad(loss * factor, copies)


def relative_error(found, expected):
    return float((found.double() - expected).norm() / expected.norm())


@pytest.mark.parametrize("dtype", list(BOUNDS))
@pytest.mark.parametrize("slice_rows", [1, 8, 1000, "kernel", "compiled"])
def test_it_is_a_projection_and_a_cross_entropy(monkeypatch, dtype, slice_rows):
    method = "sliced" if isinstance(slice_rows, int) else slice_rows
    if method == "sliced":
        monkeypatch.setitem(module.SLICE_BYTES, "cpu", slice_rows * 300 * 4)
    elif method == "compiled":  # what is compiled, as it is written
        monkeypatch.setattr(module, "_compiled_turn", lambda: module._turn_whole)
    elif obstacle_to_cpu_kernels() is not None or dtype not in KERNEL_TYPES:
        pytest.skip("no kernels for that")
    hidden, weight, bias, labels = case(dtype)
    loss = linear_cross_entropy(hidden, weight, bias, labels, ignored=IGNORED, method=method)
    found = torch.autograd.grad(loss * 0.25, (hidden, weight, bias))
    expected_loss, expected = reference(hidden, weight, bias, labels, 0.25)
    assert loss.dtype is torch.float32
    assert loss.item() == pytest.approx(expected_loss.item(), rel=BOUNDS[dtype] / 5)
    for gradient, true, leaf in zip(found, expected, (hidden, weight, bias), strict=True):
        assert gradient.dtype == leaf.dtype
        assert relative_error(gradient, true) < BOUNDS[dtype]


def test_autocast_decides_the_type_of_the_products_and_fp32_that_of_the_loss():
    hidden, weight, bias, labels = case(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = linear_cross_entropy(hidden, weight, bias, labels, ignored=IGNORED)
    (gradient,) = torch.autograd.grad(loss, weight)
    rounded = [tensor.bfloat16().double() for tensor in (hidden.detach(), weight.detach())]
    logits = F.linear(*rounded).bfloat16().double() + bias.detach()
    expected = F.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum")
    assert loss.dtype is torch.float32 and gradient.dtype is torch.float32
    # A loss computed in bf16 would be off by up to 4e-3. A sum in fp32 in another order:
    assert loss.item() == pytest.approx(expected.item(), rel=2e-4)


def test_a_gradient_that_fp16_cannot_hold_before_loss_scaling_is_not_lost():
    """Softmax over 30,000 classes, divided by 5,000 predictions, is under the smallest fp16."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(16, 8, generator=generator).half().requires_grad_()
    weight = (torch.randn(30_000, 8, generator=generator) * 0.02).half().requires_grad_()
    bias = torch.zeros(30_000, requires_grad=True)
    labels = torch.randint(0, 30_000, (16,), generator=generator)
    scale = 2.0**16 / 5000
    loss = linear_cross_entropy(hidden, weight, bias, labels, ignored=IGNORED)
    found = torch.autograd.grad(loss * scale, (hidden, weight))
    _, (hidden_gradient, weight_gradient, _) = reference(hidden, weight, bias, labels, scale)
    assert relative_error(found[0], hidden_gradient) < 3e-3  # fp16 has 11 bits
    assert relative_error(found[1], weight_gradient) < 3e-3


@pytest.mark.slow("a C++ compiler")
def test_compiled_it_computes_the_same_and_holds_one_matrix():
    """In place: what is as large as the logits would cost a GPU more time than it saves."""
    from torch._inductor.utils import run_and_get_code

    torch._dynamo.reset()
    logits = torch.randn(37, 300, generator=torch.Generator().manual_seed(0)).bfloat16()
    *_, bias, labels = case(torch.bfloat16)
    bias = bias.detach()
    plain, compiled = logits.clone(), logits.clone()
    expected = module._turn_whole(plain, bias, labels, IGNORED)
    found, (code,) = run_and_get_code(module._compiled_turn(), compiled, bias, labels, IGNORED)
    # sums of 300 and of 37 terms in another order
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(compiled, plain, rtol=2**-7, atol=1e-6)  # once rounded to bf16
    buffers = re.findall(r"buf\d+ = empty_strided_cpu\(\(([^)]*)\)", code)
    assert buffers and not [shape for shape in buffers if "300" in shape]


@pytest.mark.parametrize("method", ["sliced", "compiled"])
def test_the_largest_logits_do_not_overflow(monkeypatch, method):
    monkeypatch.setattr(module, "_compiled_turn", lambda: module._turn_whole)
    hidden, weight, bias, labels = case(torch.float32)
    hidden = (hidden.detach() * 100).requires_grad_()
    loss = linear_cross_entropy(hidden, weight, bias, labels, ignored=IGNORED, method=method)
    found = torch.autograd.grad(loss, (hidden, weight, bias))
    expected_loss, expected = reference(hidden, weight, bias, labels, 1)
    assert loss.item() == pytest.approx(expected_loss.item(), rel=1e-5)
    for gradient, true in zip(found, expected, strict=True):
        assert relative_error(gradient, true) < 1e-4  # logits of 300 carry errors of 3e-5
