"""Every attention backend, output and all gradients, against attention written out in fp64."""

import pytest
import torch

from pretrain.model.attention_backends import ATTENTION_BACKENDS
from pretrain.model.encoder import Encoder
from pretrain.model.execution_plan import ExecutionPlan
from pretrain.model.kernels import triton_attention
from pretrain.model.kernels.cpu_kernels import KERNEL_TYPES, obstacle_to_cpu_kernels
from pretrain.model.torch_attention import AttentionInputs
from tests.pretrain.model.random_encodings import model_settings, random_encoding

BATCH, HEADS, LENGTH, HEAD_WIDTH = 3, 2, 24, 16
HERE = ["eager", "sdpa"]
if obstacle_to_cpu_kernels() is None:
    HERE.append("fused")
# Rounding of the scores and weights to each type, averaged over rows of 24. The position terms are
# computed in fp32 whatever the type of the queries.
BOUNDS = {torch.float32: 2e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}


def encoding_of(positions, **model):
    shape = {"width": HEADS * HEAD_WIDTH, "num_heads": HEADS, "max_sequence_length": 32}
    return random_encoding(model_settings(positions=positions, **shape, **model), std=0.3)


def queries_keys_values(dtype):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(BATCH, LENGTH, 3, HEADS, HEAD_WIDTH, generator=generator).to(dtype)


def reference(qkv, bias, lengths, scale):
    q, k, v = qkv.permute(2, 0, 3, 1, 4)
    outputs = torch.zeros_like(q)
    for row in range(BATCH):
        end = LENGTH if lengths is None else int(lengths[row])
        for head in range(HEADS):
            scores = scale * q[row, head] @ k[row, head, :end].T
            if bias is not None:
                scores = scores + bias[head, :, :end]
            weights = scores.exp() / scores.exp().sum(-1, keepdim=True)
            outputs[row, head] = weights @ v[row, head, :end]
    return outputs


def turned(x):
    """Rotate pairs of dimensions as complex numbers, RoFormer Eq. 12, in fp64."""
    half = HEAD_WIDTH // 2
    frequencies = 10_000 ** (-torch.arange(half, dtype=torch.float64) * 2 / HEAD_WIDTH)
    angles = torch.arange(LENGTH, dtype=torch.float64)[:, None] * frequencies
    numbers = torch.complex(x[..., :half], x[..., half:]) * torch.exp(1j * angles)
    return torch.cat([numbers.real, numbers.imag], dim=-1)


def run(function, encoding, qkv, upstream):
    """Return output and gradients with respect to q, k, v and the encoding's parameters."""
    leaf = qkv.detach().clone().requires_grad_()
    output = function(leaf)
    leaves = [leaf, *encoding.parameters()]
    loss = (output * upstream.to(output.dtype)).sum()
    return output, torch.autograd.grad(loss, leaves, allow_unused=True)


def relative_error(found, expected):
    found, expected = found.detach().double(), expected.detach()
    return float((found - expected).norm() / expected.norm().clamp(min=1e-6))


@pytest.mark.parametrize("dtype", list(BOUNDS))
@pytest.mark.parametrize("lengths", [None, [LENGTH, 5, 1]])
@pytest.mark.parametrize(
    ("positions", "projection_bias"),
    [
        *(("bert-a", False), ("tupe-a", False), ("tupe-a", True)),
        *(("tupe-a-tie-cls", False), ("tupe-r", False), ("rope", False)),
    ],
)
@pytest.mark.parametrize("name", [*HERE, "triton"])
def test_a_backend_is_attention_written_out(name, positions, projection_bias, lengths, dtype):
    encoding = encoding_of(positions, position_projection_bias=projection_bias)
    if name == "triton" and (dtype is not torch.float32 or lengths is None):
        pytest.skip("the kernels themselves: test_triton_attention.py")
    if name == "fused" and dtype not in KERNEL_TYPES:
        pytest.skip("refused by plan_execution")
    if projection_bias and dtype in (torch.bfloat16, torch.float16):
        pytest.skip("its gradient is a sum that nearly cancels: rounding of the rest is all of it")
    lengths = None if lengths is None else torch.tensor(lengths, dtype=torch.int32)
    qkv, scale = queries_keys_values(dtype), encoding.score_scale
    upstream = torch.randn(BATCH, HEADS, LENGTH, HEAD_WIDTH, generator=torch.Generator())

    def found(leaf):
        terms = encoding.terms(LENGTH, device="cpu")
        attend = ATTENTION_BACKENDS[name]
        return attend(AttentionInputs(leaf, terms, scale, lengths_B=lengths))

    output, gradients = run(found, encoding, qkv, upstream)
    encoding.double()

    def expected(leaf):
        if positions == "rope":
            q, k, v = leaf.permute(2, 0, 3, 1, 4)
            leaf = torch.stack([turned(q), turned(k), v]).permute(1, 3, 0, 2, 4)
        return reference(leaf, encoding.attention_bias(LENGTH), lengths, scale)

    true_output, true_gradients = run(expected, encoding, qkv.double(), upstream)
    assert relative_error(output, true_output) < BOUNDS[dtype]
    # Positions are always fp32. The gradient of that bias sums over them: 1e-5, as for all sums.
    bound = 1e-5 if projection_bias else BOUNDS[dtype]
    for gradient, true in zip(gradients, true_gradients, strict=True):
        assert (gradient is None) == (true is None)
        if gradient is not None:
            assert relative_error(gradient, true) < bound


@pytest.mark.parametrize("name", HERE)
def test_the_gradient_of_a_shared_bias_is_fp32_whatever_the_queries_are(name):
    """A sum over twelve layers in bf16 would be three times as far off."""
    encoding = encoding_of("tupe-a")
    qkv = queries_keys_values(torch.bfloat16)
    terms = encoding.terms(LENGTH, device="cpu")
    terms.bias_NSS.retain_grad()
    attend = ATTENTION_BACKENDS[name]
    outputs = [attend(AttentionInputs(qkv, terms, 0.1)).float() for _ in range(3)]
    torch.stack(outputs).square().sum().backward()
    assert terms.bias_NSS.grad.dtype is torch.float32


def test_the_layers_read_one_cast_of_the_bias_and_their_gradients_of_it_are_not_rounded(
    monkeypatch,
):
    cast, biases, casts = triton_attention.bias_as_read, [], []

    def recorded(bias, dtype):
        bias.retain_grad()
        biases.append(bias)
        casts.append(cast(bias, dtype))
        return casts[-1]

    monkeypatch.setattr(triton_attention, "bias_as_read", recorded)
    encoder = Encoder(model_settings(positions="tupe-r"), ExecutionPlan("triton"))
    with torch.autocast("cpu", torch.bfloat16):
        encoder(torch.arange(8, 24).unsqueeze(0)).square().sum().backward()
    (bias,), (read,) = biases, casts
    assert read.dtype is torch.bfloat16 and bias.grad.any()
    assert (bias.grad.bfloat16() != bias.grad).any()
