"""Fused layers and blocks for CPUs against torch in fp64 and against the reference."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from pretrain.config.recipe import load_settings
from pretrain.kernels import cpu_layers
from pretrain.kernels.cpu_build import load_cpu_kernels, obstacle_to_cpu_kernels
from pretrain.model.blocks import Block, FusedBlock
from pretrain.model.encoder import Encoder
from pretrain.model.execution_plan import ExecutionPlan
from pretrain.model.positions import PositionTerms

pytestmark = pytest.mark.skipif(
    obstacle_to_cpu_kernels() is not None, reason=str(obstacle_to_cpu_kernels())
)
BF16 = torch.bfloat16
# sums of fp32; rounding of inputs, products and results to 8 bits
BOUNDS = {torch.float32: 3e-6, BF16: 1e-2}
WIDTHS = [1, 31, 64, 100]  # vectors are 16 or 32 wide: less than one, and a part left over


@pytest.fixture(autouse=True, params=[1, 3], ids=["one thread", "three threads"])
def kernels(request):
    """Threads divide the rows into as many parts, whose sums are added up."""
    load_cpu_kernels()
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


def normal(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(dtype).requires_grad_()


def layer(kind, *sizes, seed=7):
    made = kind(*sizes)
    for place, parameter in enumerate(made.parameters()):
        parameter.data = normal(*parameter.shape, seed=seed + place).detach()
    return made


def exact(tensor):
    return tensor.detach().double().requires_grad_()


def assert_equal(found, expected, inputs, references, dtype):
    """Compare results and, of sums weighted at random, the gradients of all inputs."""
    found, expected = list(found), list(expected)
    upstream = [normal(*one.shape, seed=50 + place).detach() for place, one in enumerate(expected)]
    cast = [gradient.to(one.dtype) for gradient, one in zip(upstream, found, strict=True)]
    of_found = torch.autograd.grad(found, inputs, cast)
    of_expected = torch.autograd.grad(expected, references, [u.double() for u in upstream])
    for ours, theirs in zip([*found, *of_found], [*expected, *of_expected], strict=True):
        distance = float(((ours - theirs).norm() / theirs.norm().clamp(min=1e-6)).detach())
        assert distance < BOUNDS[dtype], (tuple(ours.shape), distance)
    assert [gradient.dtype for gradient in of_found] == [one.dtype for one in inputs]


@pytest.mark.parametrize("dtype", list(BOUNDS))
@pytest.mark.parametrize("of_weight", list(BOUNDS))
@pytest.mark.parametrize("width", WIDTHS)
def test_a_linear_layer(dtype, of_weight, width):
    x, weight = normal(3, 5, 8, dtype=dtype), normal(width, 8, dtype=of_weight, seed=1)
    inputs, references = [x, weight], [exact(x), exact(weight)]
    bound = BF16 if BF16 in (dtype, of_weight) else torch.float32
    found, expected = [cpu_layers.linear(x, weight)], [F.linear(*references)]
    assert found[0].dtype is dtype
    assert_equal(found, expected, inputs, references, bound)


@pytest.mark.parametrize("dtype", list(BOUNDS))
def test_a_linear_layer_of_a_part_of_a_tensor(dtype):
    whole, weight = normal(3, 5, 20, dtype=dtype), normal(31, 8, seed=1)
    inputs, references = [whole, weight], [exact(whole), exact(weight)]
    found = cpu_layers.linear(whole[..., :8], weight)
    expected = F.linear(references[0][..., :8], references[1])
    assert_equal([found], [expected], inputs, references, dtype)


@pytest.mark.parametrize("dtype", list(BOUNDS))
@pytest.mark.parametrize("width", WIDTHS)
def test_a_linear_layer_with_gelu(dtype, width):
    x, linear = normal(3, 5, 8, dtype=dtype), layer(nn.Linear, 8, width)
    inputs = [x, linear.weight, linear.bias]
    references = [exact(one) for one in inputs]
    expected = F.gelu(F.linear(*references))
    assert_equal([cpu_layers.linear_gelu(x, linear)], [expected], inputs, references, dtype)


def test_gelu_far_from_zero():
    linear = layer(nn.Linear, 1, 1)
    linear.weight.data.fill_(1.0), linear.bias.data.zero_()
    x = torch.tensor([-1e4, -20.0, -6.0, -0.0, 6.0, 20.0, 1e4]).view(-1, 1).requires_grad_()
    found = cpu_layers.linear_gelu(x, linear)
    torch.testing.assert_close(found, F.gelu(x), rtol=1e-6, atol=1e-6)
    (slopes,) = torch.autograd.grad(found.sum(), x)
    torch.testing.assert_close(slopes.view(-1), torch.tensor([0.0, 0, 0, 0.5, 1, 1, 1]))


@pytest.mark.parametrize("dtype", list(BOUNDS))
@pytest.mark.parametrize("width", WIDTHS)
def test_heads(dtype, width):
    rows, heads = 37, 2  # rows: more than are gathered at a time
    x, linear = normal(3, rows, 8, dtype=dtype), layer(nn.Linear, 8, 3 * heads * width)
    linear.to(dtype)
    inputs = [x, linear.weight, linear.bias]
    references = [exact(one) for one in inputs]
    projected = F.linear(*references).view(3, rows, 3, heads, width)
    found = cpu_layers.linear_heads(x, linear, heads)
    assert_equal(found, projected.permute(2, 0, 3, 1, 4), inputs, references, dtype)


@pytest.mark.parametrize(
    ("residual", "computed"), [(torch.float32, torch.float32), (torch.float32, BF16), (BF16, BF16)]
)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    "results", [("sum",), ("sum", "narrow"), ("wide", "narrow"), ("wide",), ("narrow",)]
)
def test_a_sum_and_its_norm(residual, computed, width, results):
    x, branch = normal(3, 5, width, dtype=residual), normal(3, 5, width, dtype=computed, seed=1)
    bias, norm = normal(width, seed=2), layer(nn.LayerNorm, width)
    inputs = [x, branch, bias, norm.weight, norm.bias]
    references = [exact(one) for one in inputs]
    total = references[0] + 1.5 * (references[1] + references[2])
    normal_sum = F.layer_norm(total, (width,), *references[3:], norm.eps)
    if results == ("sum",):
        inputs, references = inputs[:3], references[:3]
        found = [cpu_layers.add(x, branch, bias, 1.5)]
    else:
        found = cpu_layers.add_and_normalize(x, branch, bias, 1.5, norm, *results)
    expected = [total if name == "sum" else normal_sum for name in results]
    types = {"sum": residual, "wide": residual, "narrow": computed}
    assert [one.dtype for one in found] == [types[name] for name in results]
    assert_equal(found, expected, inputs, references, computed)


@pytest.mark.parametrize("dtype", list(BOUNDS))
def test_a_norm_alone(dtype):
    x, norm = normal(3, 5, 100), layer(nn.LayerNorm, 100)
    inputs = [x, *norm.parameters()]
    references = [exact(one) for one in inputs]
    expected = F.layer_norm(references[0], (100,), *references[1:], norm.eps)
    same, found = cpu_layers.normalize(x, norm, dtype)
    assert found.dtype is dtype
    assert_equal([same, found], [references[0] * 1, expected], inputs, references, dtype)


def test_a_result_that_nobody_uses_and_parameters_that_are_frozen():
    x, branch, norm = normal(2, 3, 8), normal(2, 3, 8, seed=1), layer(nn.LayerNorm, 8)
    norm.requires_grad_(False)
    total, _ = cpu_layers.add_and_normalize(x, branch, None, 2.0, norm, "sum", "narrow")
    gradients = torch.autograd.grad(total.sum(), [x, branch])
    for gradient, expected in zip(gradients, (1.0, 2.0), strict=True):
        torch.testing.assert_close(gradient, torch.full_like(x, expected))


def test_gradients_that_are_not_contiguous():
    x, linear = normal(2, 3, 8), layer(nn.Linear, 8, 8)
    transposed = normal(8, 3, 2, seed=1).detach().transpose(0, 2)
    results = []
    for gradient in (transposed, transposed.contiguous()):
        output = cpu_layers.linear_gelu(x, linear)
        output = cpu_layers.add(output, output, linear.bias, 1.0)
        results.append(torch.autograd.grad(output, [x, *linear.parameters()], gradient))
    torch.testing.assert_close(*results, rtol=0, atol=0)


def test_what_does_not_fit_is_refused():
    kernels, x = torch.ops.tupelo, torch.randn(2, 3, 8)
    with pytest.raises(RuntimeError):
        kernels.gelu_(x, torch.zeros(7))
    with pytest.raises(RuntimeError):
        kernels.gelu_(x.transpose(1, 2), torch.zeros(3))
    with pytest.raises(RuntimeError):
        kernels.gelu_backward(x, torch.randn(2, 3, 7))
    with pytest.raises(RuntimeError):
        kernels.split_heads(torch.randn(2, 3, 8), torch.zeros(8), 1)
    with pytest.raises(RuntimeError):
        kernels.merge_heads(torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4))
    with pytest.raises(RuntimeError):
        cpu_layers.add(x, torch.randn(2, 3, 7), None, 1.0)


def test_the_same_bits_in_every_run():
    results = []
    for _ in range(2):
        x, branch, norm = normal(64, 16, 96), normal(64, 16, 96, seed=1), layer(nn.LayerNorm, 96)
        found = cpu_layers.add_and_normalize(x, branch, None, 1.0, norm, "sum", "narrow")
        inputs = [x, branch, *norm.parameters()]
        results.append(torch.autograd.grad(found, inputs, [x.detach(), branch.detach()]))
    torch.testing.assert_close(*results, rtol=0, atol=0)


def block_settings(*words):
    return load_settings("tiny_cpu", ["--model.dropout", "0", *words]).model


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("scale", [None, 1.25])
@pytest.mark.parametrize("kind", ["fp32", "autocast", "bf16"])
@pytest.mark.parametrize("positions", [None, [50, 3, *range(20, 44), 3]])
def test_a_fused_block_is_the_block(norm, scale, kind, positions):
    settings = block_settings("--model.norm", norm, "--model.width", "96", "--model.num_heads", "2")
    block, fused = (made(settings, 0.1) for made in (Block, FusedBlock))
    std = 0.3 if positions is None else 0.2  # a sum over fewer positions is rounded less evenly
    for place, parameter in enumerate(block.parameters()):
        nn.init.normal_(parameter, std=std, generator=torch.Generator().manual_seed(place))
    fused.load_state_dict(block.state_dict())
    x, terms = normal(3, 19, 96), PositionTerms(normal(2, 19, 19, seed=1))
    reference_x, reference_terms = exact(x), PositionTerms(exact(terms.bias_NSS))
    lengths = torch.tensor([19, 4, 11], dtype=torch.int32)
    positions = None if positions is None else torch.tensor(positions)
    if kind == "bf16":
        fused, x = fused.to(BF16), normal(3, 19, 96, dtype=BF16)
    expected = block.double()(reference_x, reference_terms, scale, lengths, positions)
    with torch.autocast("cpu", dtype=BF16, enabled=kind == "autocast"):
        found = fused(x, terms, scale, lengths, positions)
    assert found.dtype is x.dtype
    inputs = [x, terms.bias_NSS, *fused.parameters()]
    references = [reference_x, reference_terms.bias_NSS, *block.parameters()]
    bound = torch.float32 if kind == "fp32" else BF16
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BOUNDS, BF16, 3e-2)  # through a whole block
        assert_equal([found], [expected], inputs, references, bound)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_dropout_of_the_branches(norm):
    """Where it falls, and that evaluation has none."""
    settings = block_settings("--model.norm", norm, "--model.dropout", "0.4")
    block, fused = (made(settings, 0.1) for made in (Block, FusedBlock))
    fused.load_state_dict(block.state_dict())
    x = normal(2, 9, settings.width)
    for is_training in (True, False):
        outputs = []
        for one in (block.train(is_training), fused.train(is_training)):
            torch.manual_seed(3)
            outputs.append(one(x, PositionTerms(), 1.25))
        torch.testing.assert_close(*outputs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_recomputed_blocks_are_the_same(norm):
    settings, results = block_settings("--model.norm", norm), []
    for recompute in (False, True):
        torch.manual_seed(0)
        execution = ExecutionPlan("fused", recomputes_blocks=recompute, fuses_blocks=True)
        encoder = Encoder(settings, execution)
        output = encoder(torch.arange(5, 37).view(1, 32), [1.2] * settings.num_layers)
        results.append(torch.autograd.grad(output.square().sum(), list(encoder.parameters())))
    torch.testing.assert_close(*results, rtol=0, atol=0)
