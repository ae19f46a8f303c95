"""Dropout of kernels, and the gradient of a shared bias; backends: test_position_equations.py."""

import pytest
import torch

from pretrain.model.attention_backends import ATTENTION_BACKENDS
from pretrain.model.encoder import Encoder
from pretrain.model.execution_plan import ExecutionPlan
from pretrain.model.kernels import triton_attention
from pretrain.model.kernels.cpu_kernels import fused_attention, obstacle_to_cpu_kernels
from pretrain.model.position_encoding import PositionTerms
from pretrain.model.torch_attention import AttentionInputs
from tests.pretrain.model.random_encodings import model_settings, random_encoding

HEADS, LENGTH, HEAD_WIDTH = 2, 24, 16
HERE = ["eager", "sdpa"]
if obstacle_to_cpu_kernels() is None:
    HERE.append("fused")


@pytest.mark.skipif("fused" not in HERE, reason="there are no kernels for this CPU")
def test_the_kernels_drop_weights_and_their_gradients():
    shape, dropout = (8, HEADS, LENGTH, LENGTH), 0.3
    qkv, upstream = torch.randn(3, *shape), torch.randn(shape)
    lengths = torch.tensor([LENGTH, 5, 1, *[LENGTH] * 5], dtype=torch.int32)
    is_word = (torch.arange(LENGTH) < lengths[:, None, None, None]).expand(shape)

    def found(leaf, seed=3):
        torch.manual_seed(seed)
        return fused_attention(*leaf, None, lengths, 0.2, dropout)

    def kept(seed):  # where the values are a unit matrix, the output is the weights
        return found([*qkv[:2], torch.eye(LENGTH).expand(shape)], seed) != 0

    def expected(leaf):
        scores = (0.2 * leaf[0] @ leaf[1].mT).masked_fill(~is_word, -torch.inf)
        return (scores.softmax(-1) * kept(3) / (1 - dropout)) @ leaf[2]

    assert float(kept(3)[is_word].float().mean()) == pytest.approx(1 - dropout, abs=0.03)
    assert not torch.equal(kept(3), kept(4))
    results = []
    for function, leaf in ((found, qkv.clone()), (expected, qkv.double())):
        output = function(leaf.requires_grad_())
        results.append((output.detach(), *torch.autograd.grad((output * upstream).sum(), leaf)))
    for ours, true in zip(*results, strict=True):
        assert float((ours - true).norm() / true.norm()) < 2e-5


@pytest.mark.parametrize("name", HERE)
def test_a_backend_drops_weights_and_scales_the_others(name):
    qkv = torch.randn(3, LENGTH, 3, HEADS, HEAD_WIDTH)
    qkv[:, :, 2] = 1  # the output is the sum of the weights that are kept
    kept = ATTENTION_BACKENDS[name](AttentionInputs(qkv, PositionTerms(), 0.2, dropout=0.3))
    assert kept.std() > 0.01 and kept.mean().item() == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("name", HERE)
def test_the_gradient_of_a_shared_bias_is_fp32_whatever_the_queries_are(name):
    """A sum over twelve layers in bf16 would be three times as far off."""
    shape = {"width": HEADS * HEAD_WIDTH, "num_heads": HEADS, "max_sequence_length": 32}
    encoding = random_encoding(model_settings(positions="tupe-a", **shape), std=0.3)
    qkv = torch.randn(3, LENGTH, 3, HEADS, HEAD_WIDTH, dtype=torch.bfloat16)
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
