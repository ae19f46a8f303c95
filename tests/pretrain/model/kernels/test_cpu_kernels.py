"""The C++ kernels for CPUs against torch in fp64, and how they are compiled."""

import ctypes
import threading

import pytest
import torch
import torch.nn.functional as F

from pretrain.model.kernels import cpu_kernels
from pretrain.model.kernels.cpu_kernels import (
    KernelError,
    load_cpu_kernels,
    obstacle_to_cpu_kernels,
)

needs_kernels = pytest.mark.skipif(
    obstacle_to_cpu_kernels() is not None, reason=str(obstacle_to_cpu_kernels())
)
# exp of 20 units in the last place; rounding of the result to 8 bits
BF16 = torch.bfloat16
BOUNDS = {torch.float32: 3e-6, BF16: 3e-3}


@pytest.fixture(params=[1, 3], ids=["one thread", "three threads"])
def kernels(request):
    """Threads divide heads and rows; sums over the parts of the rows are added up."""
    load_cpu_kernels()
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield cpu_kernels
    torch.set_num_threads(before)


def normal(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def relative_error(found, expected):
    return float((found.double() - expected).norm() / expected.norm())


@needs_kernels
@pytest.mark.parametrize("dtype", list(BOUNDS))
@pytest.mark.parametrize("keys", [1, 31, 32, 33, 100])
def test_softmax_with_a_bias_and_padding(kernels, dtype, keys):
    scores, bias = 5 * normal(3, 2, 7, keys, dtype=dtype), normal(2, 7, keys, seed=1)
    lengths = torch.tensor([keys, 1, max(1, keys // 2)], dtype=torch.int32)
    found = scores.clone()
    kernels.softmax_(found, 0.7, bias, lengths)
    is_padding = torch.arange(keys) >= lengths.view(3, 1, 1, 1)
    sums = (0.7 * scores.double() + bias.double()).masked_fill(is_padding, -torch.inf)
    assert relative_error(found, torch.softmax(sums, -1)) < BOUNDS[dtype]
    assert not found.masked_select(is_padding).any()


@needs_kernels
@pytest.mark.parametrize("dtype", list(BOUNDS))
@pytest.mark.parametrize(
    "shape",
    [(3, 2, 7, 33), (64, 2, 20, 512)],  # the second in several blocks of rows
)
def test_the_gradients_of_scores_and_bias(kernels, dtype, shape):
    weights = torch.softmax(normal(*shape), -1).to(dtype)
    upstream = normal(*shape, dtype=dtype, seed=1)
    exact, given = weights.double(), upstream.double()
    expected = exact * (given - (exact * given).sum(-1, keepdim=True))
    found = upstream.clone()
    bias_gradient = kernels.softmax_backward_(found, 0.7, weights, True)
    assert bias_gradient.dtype is torch.float32
    assert relative_error(found, 0.7 * expected) < BOUNDS[dtype]
    assert relative_error(bias_gradient, expected.sum(0)) < BOUNDS[dtype]
    without = upstream.clone()
    assert kernels.softmax_backward_(without, 0.7, weights, False) is None
    torch.testing.assert_close(without, found, rtol=0, atol=0)


@needs_kernels
@pytest.mark.parametrize("dtype", list(BOUNDS))
@pytest.mark.parametrize("classes", [2, 32, 75])
def test_cross_entropy_turns_logits_into_gradients(kernels, dtype, classes):
    logits, bias = 4 * normal(9, classes, dtype=dtype), normal(classes, seed=1)
    labels = torch.arange(9) % classes
    labels[3] = -100
    leaf, bias_leaf = logits.double().requires_grad_(), bias.double().requires_grad_()
    expected = F.cross_entropy(leaf + bias_leaf, labels, ignore_index=-100, reduction="none")
    gradient, bias_gradient = torch.autograd.grad(expected.sum(), (leaf, bias_leaf))
    found = logits.clone()
    losses, found_bias_gradient = kernels.cross_entropy_(found, bias, labels, -100)
    torch.testing.assert_close(losses.double(), expected.detach(), rtol=1e-5, atol=1e-5)
    assert losses[3] == 0 and not found[3].any()
    assert relative_error(found, gradient) < BOUNDS[dtype]
    assert relative_error(found_bias_gradient, bias_gradient) < 1e-5


@needs_kernels
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_is_not_hidden(kernels, bad):
    """The fast exponential of NaN is a number."""
    scores, bias, labels = normal(1, 1, 2, 40), normal(40), torch.tensor([5, 6])
    scores[0, 0, 1, 7] = bad
    logits = scores[0, 0].clone()
    kernels.softmax_(scores, 1.0, None, None)
    assert scores[0, 0, 0].isfinite().all() and scores[0, 0, 1].isnan().all()
    losses, bias_gradient = kernels.cross_entropy_(logits, bias, labels, -100)
    assert losses[0].isfinite() and not losses[1].isfinite()
    assert logits[0].isfinite().all() and logits[1].isnan().all() and bias_gradient.isnan().all()


@needs_kernels
def test_the_same_bits_in_every_run(kernels):
    results = []
    for _ in range(2):
        scores = normal(16, 2, 64, 128, dtype=BF16)
        kernels.softmax_(scores, 1.0, normal(2, 64, 128), None)
        logits = normal(300, 1000, dtype=BF16)
        _, bias_gradient = kernels.cross_entropy_(logits, normal(1000), torch.arange(300), -100)
        results.append((scores, logits, bias_gradient))
    torch.testing.assert_close(*results, rtol=0, atol=0)


@needs_kernels
def test_threads_that_another_library_sets_do_not_write_past_the_end(kernels):
    """The loop asks torch once per thread and library for their number, and sets it."""
    results = []

    def act():
        torch.get_num_threads()
        ctypes.CDLL(None).omp_set_num_threads(1)
        logits, labels = normal(2, 64), torch.tensor([1, 2])
        expected = (torch.softmax(logits, -1) - F.one_hot(labels, 64)).sum(0)
        _, found = kernels.cross_entropy_(logits, torch.zeros(64), labels, -100)
        results.append((found, expected))

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        thread = threading.Thread(target=act)
        thread.start()
        thread.join()
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(*results[0], rtol=1e-4, atol=1e-6)


@needs_kernels
def test_what_does_not_fit_is_refused(kernels):
    scores, labels = normal(2, 2, 4, 8), torch.tensor([1, 8])
    with pytest.raises(AssertionError):
        kernels.softmax_(scores.transpose(-1, -2), 1.0, None, None)
    with pytest.raises(IndexError, match="a length is out of bounds"):
        kernels.softmax_(scores, 1.0, None, torch.tensor([8, 9], dtype=torch.int32))
    with pytest.raises(IndexError, match="a label or a length is out of bounds"):
        kernels.cross_entropy_(normal(2, 8), normal(8), labels, -100)


def test_without_a_compiler_there_are_no_kernels(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(KernelError, match="there is no g.. to compile them"):
        load_cpu_kernels.__wrapped__()


def test_on_another_kind_of_cpu_there_are_no_kernels(monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    assert obstacle_to_cpu_kernels() == "they are made for AVX2 and AVX512, and this CPU is DEFAULT"


@needs_kernels
def test_a_compiler_that_fails_is_quoted_in_one_line_and_leaves_nothing(monkeypatch, tmp_path):
    compiler = tmp_path / "g++"
    compiler.write_text("#!/bin/sh\necho 'a note\nx.h:1: error: no header\nmore' >&2\nexit 1\n")
    compiler.chmod(0o755)
    kept = tmp_path / "kept"
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(kept))
    with pytest.raises(KernelError, match="fails: x.h:1: error: no header$"):
        load_cpu_kernels.__wrapped__()
    assert not list(kept.iterdir())


@needs_kernels
def test_what_is_there_is_not_compiled_again(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    library = cpu_kernels._library(cpu_kernels._compile_command())
    library.write_bytes(b"")
    monkeypatch.setattr(cpu_kernels, "_run", lambda command: pytest.fail("compiled"))
    with pytest.raises(KernelError, match="file too short"):
        load_cpu_kernels.__wrapped__()
