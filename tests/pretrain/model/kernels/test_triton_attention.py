"""The Triton kernels against the formula in fp64; in Triton's interpreter where no GPU is."""

import math
from functools import partial

import numpy
import pytest
import torch
from torch.utils.checkpoint import checkpoint

from pretrain.model.kernels import triton_attention as module
from pretrain.model.kernels import triton_kernels
from pretrain.model.kernels.triton_attention import triton_attention
from pretrain.model.kernels.triton_tilings import tilings
from tests.pretrain.model.attention_reference import (
    BOUNDS,
    DEVICE,
    assert_close,
    exact,
    example,
    with_gradients,
)
from tests.selection import mostly_slow

INTERPRETED = "the interpreter computes a tile in seconds"


@pytest.fixture(params=[80, 90])
def architecture(request, monkeypatch):
    """Each row of the table of tiles; on a GPU, its own only."""
    if triton_kernels.interpreted():
        monkeypatch.setattr(triton_kernels, "architecture", lambda: request.param)
    elif tilings(64, torch.float16, request.param) != tilings(
        64, torch.float16, triton_kernels.architecture()
    ):
        pytest.skip(f"tiles for sm_{request.param}")


def counts(*lengths):
    return torch.tensor(lengths, dtype=torch.int32, device=DEVICE)


def check(qkv, bias, lengths, d_o, bound):
    arguments = (qkv, bias, lengths, 0.2, d_o)
    assert_close(with_gradients(triton_attention, *arguments), exact(*arguments), bound)


@pytest.mark.parametrize("length", mostly_slow([64, 1, 65], INTERPRETED))
def test_values_and_gradients_are_those_of_the_formula(length):
    qkv, bias, d_o = example(length)
    check(qkv, bias, None, d_o, BOUNDS[torch.float32])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("length", mostly_slow([17, 70], INTERPRETED))
@pytest.mark.usefixtures("architecture")
def test_half_precision_costs_no_more_than_its_rounding(length, dtype):
    qkv, bias, d_o = example(length, batch=1, heads=1, head_width=64, dtype=dtype)
    check(qkv, bias, None, d_o, BOUNDS[dtype])


@pytest.mark.parametrize(
    ("length", "lengths"), mostly_slow([(33, (33, 1)), (70, (31, 70))], INTERPRETED)
)
def test_keys_beyond_the_length_of_a_sequence_are_not_seen(length, lengths):
    qkv, bias, d_o = example(length, heads=1)
    check(qkv, bias, counts(*lengths), d_o, BOUNDS[torch.float32])


@pytest.mark.parametrize("head_width", mostly_slow([16, 32, 64, 128], INTERPRETED))
def test_every_head_width_is_exact(head_width):
    qkv, bias, d_o = example(20, batch=1, heads=1, head_width=head_width)
    check(qkv, bias, None, d_o, BOUNDS[torch.float32])


@pytest.mark.parametrize("lengths", [None, (30, 33)])
def test_without_a_bias_it_is_plain_attention(lengths):
    qkv, _, d_o = example(33, heads=1)
    check(qkv, None, lengths and counts(*lengths), d_o, BOUNDS[torch.float32])


def test_inputs_may_lie_in_memory_in_any_way():
    length, generator = 20, torch.Generator().manual_seed(0)
    qkv = torch.randn(3, 3, length, 20, generator=generator).to(DEVICE)[..., 3:19]
    qkv = qkv.permute(2, 0, 1, 3).expand(2, -1, -1, -1, -1)
    bias = torch.randn(3, 64, 64, generator=generator).to(DEVICE)[:, 4:24, 5:25]
    d_o = torch.ones((), device=DEVICE).expand(2, 3, length, 16)
    check(qkv, bias, None, d_o, BOUNDS[torch.float32])


def test_the_projections_around_it_get_output_and_gradient_without_a_copy(monkeypatch):
    backward, made = module.attention_backward, []

    def recorded(*arguments):
        made.append(backward(*arguments))
        return made[0]

    monkeypatch.setattr(module, "attention_backward", recorded)
    qkv, bias, d_o = example(20)
    projected = qkv.flatten(2).requires_grad_()
    o = triton_attention(projected.view(qkv.shape), bias, None, 0.2)
    assert o.transpose(1, 2).is_contiguous()
    (gradient,) = torch.autograd.grad(o, projected, d_o)
    assert gradient.data_ptr() == made[0][0].data_ptr()


@pytest.mark.parametrize("programs", mostly_slow([2, 1, 264], INTERPRETED))
def test_the_batch_may_be_split_in_any_way_for_the_bias_gradient(programs, monkeypatch):
    # A head of one tile: shares of 3 and 2 sequences, one of 5, five of 1.
    monkeypatch.setattr(module, "BIAS_GRADIENT_PROGRAMS", programs)
    qkv, bias, d_o = example(16, batch=5, heads=1)
    check(qkv, bias, counts(16, 3, 16, 10, 1), d_o, BOUNDS[torch.float32])


@pytest.mark.gpu  # the interpreter has one order
def test_two_runs_give_the_same_bits():
    qkv, bias, d_o = example(96, batch=3, dtype=torch.float16)
    arguments = (qkv, bias, counts(96, 50, 70), 0.2, d_o)
    first, second = (with_gradients(triton_attention, *arguments) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


@pytest.mark.slow(INTERPRETED)
@pytest.mark.usefixtures("architecture")
def test_rows_of_scores_near_minus_100_stay_exact():
    # exp(-100) is no fp32 number, and 192 % 128 = 64: where other kernels have returned NaN
    qkv, bias, d_o = example(192, batch=1, heads=1, dtype=torch.bfloat16)
    # bf16 has whole powers of two there, and nothing between
    bias = ((bias - 100) / math.log(2)).round() * math.log(2)
    check(qkv, bias, None, d_o, BOUNDS[torch.bfloat16])


@pytest.mark.slow(INTERPRETED)
def test_a_bias_may_forbid_keys_with_minus_infinity():
    qkv, bias, d_o = example(70, batch=1)
    bias[0, :, :65] = float("-inf")  # whole tiles
    bias[1].fill_diagonal_(float("-inf"))
    check(qkv, bias, None, d_o, BOUNDS[torch.float32])


def test_a_sequence_reads_the_bias_in_the_type_of_the_queries_and_its_gradient_is_fp32(monkeypatch):
    seen = []

    class Recorder:
        def __getitem__(self, grid):
            return lambda *arguments, **constants: seen.append(arguments[1])

    for name in ("forward", "query_gradient", "key_value_gradient", "bias_gradient"):
        monkeypatch.setattr(triton_kernels, f"{name}_kernel", Recorder())
    qkv, bias, d_o = example(20, dtype=torch.bfloat16)
    gradients = with_gradients(triton_attention, qkv, bias, None, 0.2, d_o)
    assert gradients[-1].dtype == torch.float32
    scaled = (bias.double() / math.log(2)).to(torch.bfloat16)
    assert len(seen) == 4
    for read in seen:
        assert read.dtype == torch.bfloat16 and read.is_contiguous()
        torch.testing.assert_close(read, torch.stack((scaled, scaled.mT)), rtol=2**-8, atol=0)


def survivors(seeds, length, dropout):
    """Return BNSS, 1 where dropout leaves a weight and 0 where not, by the documented formula."""
    place = numpy.arange(length, dtype=numpy.uint64)
    query_seed, key_seed = seeds.cpu().numpy().astype(numpy.uint64)[..., None].transpose(2, 0, 1, 3)
    from_query = (place * 0x9E3779B1 + query_seed) % 2**32
    from_key = (place * 0x85EBCA77 + key_seed) % 2**32
    x = from_query[..., :, None] ^ from_key[..., None, :]
    x = x * 0x7FEB352D % 2**32
    x = (x ^ (x >> 15)) * 0x846CA68B % 2**32
    return torch.from_numpy(x >= round(dropout * 2**32)).to(DEVICE)


def seeds_after(seed, batch, heads):
    """Return the seeds that attention draws after torch.manual_seed(seed)."""
    torch.manual_seed(seed)
    return torch.randint(2**31, (batch, heads, 2), dtype=torch.int32, device=DEVICE)


def check_dropout(qkv, bias, lengths, d_o, dropout, bound):
    factors = survivors(seeds_after(5, len(qkv), qkv.shape[3]), qkv.shape[1], dropout) / (
        1 - dropout
    )
    arguments = (qkv, bias, lengths, 0.2, d_o)
    torch.manual_seed(5)
    found = with_gradients(partial(triton_attention, dropout=dropout), *arguments)
    assert_close(found, exact(*arguments, factors), bound)


@pytest.mark.parametrize(("length", "dropout"), mostly_slow([(33, 0.1), (70, 0.5)], INTERPRETED))
def test_dropout_drops_the_same_weights_in_every_kernel(length, dropout):
    qkv, bias, d_o = example(length, heads=1)
    check_dropout(qkv, bias, None, d_o, dropout, BOUNDS[torch.float32])


@pytest.mark.parametrize("with_bias", mostly_slow([True, False], INTERPRETED))
def test_dropout_goes_with_padding_and_without_a_bias(with_bias):
    qkv, bias, d_o = example(20)
    bias = bias if with_bias else None
    check_dropout(qkv, bias, counts(20, 9), d_o, 0.3, BOUNDS[torch.float32])


@pytest.mark.parametrize("dtype", mostly_slow([torch.bfloat16, torch.float16], INTERPRETED))
@pytest.mark.usefixtures("architecture")
def test_which_weights_are_dropped_does_not_depend_on_the_tiles(dtype):
    qkv, bias, d_o = example(66, batch=1, heads=1, head_width=64, dtype=dtype)
    check_dropout(qkv, bias, None, d_o, 0.1, BOUNDS[dtype])


def test_dropped_weights_are_a_fair_and_independent_choice():
    """Over 48 heads of 128 x 128 weights, each mean within five standard errors."""
    dropout, shape = 0.1, (8, 6)
    dropped = ~survivors(seeds_after(0, *shape), 128, dropout)
    z = (dropped.double() - dropout) / (dropout * (1 - dropout)) ** 0.5
    step = z[1:] * z[:-1], z[:, 1:] * z[:, :-1]  # the same place in other sequences and heads
    lags = [(a, b) for a in (0, 1, 2, 3, 8, 64) for b in (-64, -8, -1, 0, 1, 2, 8, 64)]
    moved = [
        z[:, :, a:] * z[:, :, : 128 - a].roll(b, -1) for a, b in lags if a or b
    ]  # other places of the same head
    later = ~survivors(seeds_after(1, *shape), 128, dropout)
    others = z * (later.double() - dropout)
    # Four corners of rectangles: the two numbers of a weight are combined by an exclusive or.
    corners = [
        z[:, :, a:, b:] * z[:, :, :-a, :-b] * z[:, :, a:, :-b] * z[:, :, :-a, b:]
        for a in (1, 2, 3, 8, 64)
        for b in (1, 2, 3, 8, 64)
    ]
    for sample in (z, *step, *moved, others, *corners):
        assert abs(sample.mean()) < 5 * sample.std() / sample.numel() ** 0.5
    # Heads differ as much from their mean as independent draws do: chi-square of 48.
    assert 20 < z.mean((2, 3)).square().sum() * 128 * 128 < 90


def test_calls_draw_other_seeds_and_without_dropout_none():
    qkv, bias, _ = example(20)
    torch.manual_seed(0)
    first, second = (triton_attention(qkv, bias, None, 0.2, 0.5) for _ in range(2))
    torch.manual_seed(0)
    again = triton_attention(qkv, bias, None, 0.2, 0.5)
    assert torch.equal(first, again) and not torch.equal(first, second)
    generator_state = torch.cuda.get_rng_state if DEVICE == "cuda" else torch.get_rng_state
    before = generator_state()
    triton_attention(qkv, bias, None, 0.2)
    assert torch.equal(before, generator_state())


@pytest.mark.parametrize("compiles", [False, True])
def test_a_recomputed_block_drops_the_weights_that_it_dropped(compiles):
    def block(projected, bias):
        return triton_attention(projected, bias, None, 0.2, 0.3)

    projected = torch.randn(1, 20, 3, 2, 16, device=DEVICE, requires_grad=True)
    bias = torch.randn(2, 20, 20, device=DEVICE, requires_grad=True)
    run = torch.compile(block, backend="aot_eager", fullgraph=True) if compiles else block
    output = checkpoint(run, projected, bias, use_reentrant=False, preserve_rng_state=True)
    torch.rand(3, device=DEVICE)  # what the rest of a step draws
    (gradient,) = torch.autograd.grad(output.sum(), projected)
    # The output is linear in the values.
    torch.testing.assert_close((gradient * projected)[:, :, 2].sum(), output.sum())


def test_a_bias_that_needs_no_gradient_costs_none(monkeypatch):
    def refuse(*arguments):
        raise AssertionError("computed the gradient of the bias")

    monkeypatch.setattr(module, "attention_bias_gradient", refuse)
    qkv, bias, d_o = example(20)
    qkv = qkv.detach().requires_grad_()
    triton_attention(qkv, bias, None, 0.2).backward(d_o)
    expected = torch.stack(exact(qkv, bias, None, 0.2, d_o)[1:4]).permute(1, 3, 0, 2, 4)
    torch.testing.assert_close(qkv.grad.double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow("runs every kernel in several modes of torch.library.opcheck")
@pytest.mark.parametrize("with_bias_and_lengths", [True, False])
def test_the_operators_keep_the_rules_of_torch_library(with_bias_and_lengths):
    qkv, bias, d_o = example(20, bias_dtype=torch.bfloat16)
    read, lengths = module.bias_as_read(bias, torch.float32), counts(20, 7)
    if not with_bias_and_lengths:
        bias = read = lengths = None
    learned = [x if x is None else x.requires_grad_() for x in (qkv, bias)]
    fixed = (read, lengths, seeds_after(0, 2, 2), 0.2, 0.1)
    torch.library.opcheck(module.attention_forward, (*learned, *fixed))
    with torch.no_grad():
        o, logsumexp = module.attention_forward(*learned, *fixed)
    d_o, fixed = d_o.transpose(1, 2), (qkv.detach(), *fixed)
    torch.library.opcheck(module.attention_backward, (*fixed, o, logsumexp, d_o))
    row_products = module.attention_backward(*fixed, o, logsumexp, d_o)[1]
    if with_bias_and_lengths:
        arguments = (*fixed, logsumexp, d_o, row_products)
        torch.library.opcheck(module.attention_bias_gradient, arguments)
