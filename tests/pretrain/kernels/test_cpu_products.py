"""Our kernels for CPUs that multiply bf16, against torch in fp64."""

import pytest
import torch

from pretrain.kernels.cpu_build import load_cpu_kernels, multiplies, obstacle_to_cpu_kernels

pytestmark = pytest.mark.skipif(
    obstacle_to_cpu_kernels() is not None, reason=str(obstacle_to_cpu_kernels())
)
BOUND = 5e-3  # rounding of scores, weights and results to 8 bits


@pytest.fixture(autouse=True, params=[1, 3], ids=["one thread", "three threads"])
def kernels(request):
    """Threads divide the heads, and the batch where there are few of them."""
    load_cpu_kernels()
    if not multiplies(torch.bfloat16):
        pytest.skip("this CPU does not multiply bf16, or this torch does not let kernels do it")
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield torch.ops.tupelo
    torch.set_num_threads(before)


def normal(*shape, dtype=torch.bfloat16, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def relative_error(found, expected):
    expected = expected.detach()
    return float((found.double() - expected).norm() / expected.norm().clamp(min=1e-9))


def written_out(q, k, v, scale, bias, lengths):
    scores = scale * q @ k.transpose(-1, -2)
    if bias is not None:
        scores = scores + bias
    if lengths is not None:
        is_padding = torch.arange(scores.shape[-1]) >= lengths.view(-1, 1, 1, 1)
        scores = scores.masked_fill(is_padding, -torch.inf)
    return torch.softmax(scores, -1) @ v


@pytest.mark.parametrize("has_lengths", [False, True])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize(
    "shape",  # batch, heads, length, width
    [
        *((2, 3, 128, 64), (5, 1, 16, 32)),
        *((3, 2, 19, 6), (1, 2, 1, 2), (4, 1, 77, 34)),  # less than a vector, and a part left over
        *((1, 1, 700, 16), (2, 1, 301, 8)),  # some queries after the other
    ],
)
def test_heads(kernels, shape, has_bias, has_lengths):
    batch, heads, length, _ = shape
    q, k, v, upstream = (normal(*shape, seed=seed) for seed in range(4))
    bias = normal(heads, length, length, dtype=torch.float32, seed=4) if has_bias else None
    lengths = torch.arange(1, batch + 1, dtype=torch.int32) * length // batch
    lengths = lengths.clamp(min=1) if has_lengths else None
    leaves = [one.double().requires_grad_() for one in (q, k, v, bias) if one is not None]
    true = written_out(*leaves[:3], 0.2, leaves[3] if has_bias else None, lengths)
    expected = torch.autograd.grad(true, leaves, upstream.double())
    mixed, weights = kernels.attend_heads(q, k, v, 0.2, bias, lengths)
    given = upstream.transpose(1, 2).contiguous()
    *found, bias_gradient = kernels.attend_heads_backward(given, q, k, v, weights, 0.2, has_bias)
    assert relative_error(mixed.transpose(1, 2), true) < BOUND
    for gradient, exact in zip(found, expected, strict=False):
        # of a single key the weight is 1, whatever query and key are
        assert relative_error(gradient, exact) < BOUND or not gradient.any() and length == 1
    if has_bias:
        assert bias_gradient.dtype is torch.float32
        assert relative_error(bias_gradient, expected[3]) < BOUND or length == 1
    else:
        assert bias_gradient is None


def test_what_is_not_finite_in_scores_is_not_hidden(kernels):
    q, k, v = (normal(1, 1, 40, 8, seed=seed) for seed in range(3))
    for bad in (float("nan"), float("inf")):
        bias = torch.zeros(1, 40, 40)
        bias[0, 3, 7] = bad
        mixed, _ = kernels.attend_heads(q, k, v, 1.0, bias, None)
        assert mixed[0, 3].isnan().all()
        assert mixed[0, :3].isfinite().all() and mixed[0, 4:].isfinite().all()


def test_without_sequences_the_gradient_of_the_bias_is_zero(kernels):
    q = normal(0, 2, 4, 8)
    mixed, weights = kernels.attend_heads(q, q, q, 1.0, None, None)
    assert mixed.shape == (0, 4, 2, 8)
    *_, bias_gradient = kernels.attend_heads_backward(mixed, q, q, q, weights, 1.0, True)
    assert bias_gradient.shape == (2, 4, 4) and not bias_gradient.any()


def test_heads_that_do_not_fit_are_refused(kernels):
    q, odd = normal(1, 2, 4, 8), normal(1, 2, 4, 7)
    for wrong in ((q, q, q[:, :1]), (odd, odd, odd), (q.float(), q, q), (q, q.transpose(1, 2), q)):
        with pytest.raises(RuntimeError):
            kernels.attend_heads(*wrong, 1.0, None, None)
    with pytest.raises(RuntimeError):
        kernels.attend_heads(q, q, q, 1.0, torch.zeros(2, 4, 5), None)
    with pytest.raises(IndexError, match="a length of 5 for 4 keys"):
        kernels.attend_heads(q, q, q, 1.0, None, torch.tensor([5], dtype=torch.int32))


@pytest.mark.parametrize(
    "shape",  # rows, and the widths of gradients and inputs
    [(1, 1, 1), (7, 31, 5), (64, 128, 32), (300, 257, 131), (4100, 20, 70), (129, 600, 129)],
)
def test_the_gradient_of_a_weight_is_not_rounded_to_bf16(kernels, shape):
    rows, columns, inner = shape
    gradients, inputs = normal(rows, columns), normal(rows, inner, seed=1)
    found = kernels.weight_gradient(gradients, inputs)
    assert found.dtype is torch.float32
    assert relative_error(found, gradients.double().t() @ inputs.double()) < 1e-6


def test_without_rows_the_gradient_of_a_weight_is_zero(kernels):
    found = kernels.weight_gradient(normal(0, 3), normal(0, 5))
    assert found.shape == (3, 5) and not found.any()


def test_the_same_bits_in_every_run(kernels):
    results = []
    for _ in range(2):
        q, k, v = (normal(6, 2, 200, 32, seed=seed) for seed in range(3))
        mixed, weights = kernels.attend_heads(q, k, v, 0.2, torch.zeros(2, 200, 200), None)
        found = kernels.attend_heads_backward(mixed, q, k, v, weights, 0.2, True)
        results.append((mixed, *found, kernels.weight_gradient(normal(900, 70), normal(900, 90))))
    for first, second in zip(*results, strict=True):
        assert torch.equal(first, second)
