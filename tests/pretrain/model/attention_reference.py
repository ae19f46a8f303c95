"""Attention with a shared bias by its formula, in fp64, and inputs for kernels."""

from functools import partial

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

# Relative error in the Frobenius norm. fp32: sums of a few hundred products. fp16 and bf16:
# operands and results are rounded, by 2^-11 and 2^-8 at most; Triton's interpreter cuts bf16 off
# instead, which doubles it, and gradients see it in three factors.
BOUNDS = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 1.5e-2}


def example(
    length, *, batch=2, heads=2, head_width=16, dtype=torch.float32, bias_dtype=torch.float32
):
    """q, k and v as one projection BS3NH, a bias and a gradient of the output."""
    generator = torch.Generator().manual_seed(length)
    qkv = torch.randn(batch, length, 3, heads, head_width, generator=generator).to(DEVICE, dtype)
    bias = torch.randn(heads, length, length, generator=generator).to(DEVICE, bias_dtype)
    d_o = torch.randn(batch, heads, length, head_width, generator=generator).to(DEVICE, dtype)
    return qkv, bias, d_o


def eager(qkv, bias, lengths, scale, factors=1.0):
    """Return (factors * softmax(scale q k^T + bias)) v with the whole score matrix in memory.

    `factors` are those of dropout: 0 for a dropped weight, 1 / r for the share r that stays.
    """
    q, k, v = qkv.permute(2, 0, 3, 1, 4)
    scores = scale * q @ k.transpose(-1, -2)
    if bias is not None:
        scores = scores + bias
    if lengths is not None:
        hidden = torch.arange(k.shape[2], device=k.device) >= lengths[:, None]
        scores = scores.masked_fill(hidden[:, None, None, :], float("-inf"))
    return (torch.softmax(scores, dim=-1) * factors) @ v


def with_gradients(attention, qkv, bias, lengths, scale, d_o):
    """Return the output and the gradients of q, k, v and the bias, where there is one."""
    leaves = [x.detach().requires_grad_() for x in (qkv, bias) if x is not None]
    output = attention(*leaves, *([None] if bias is None else []), lengths, scale)
    d_qkv, *d_bias = torch.autograd.grad(output, leaves, d_o)
    return output, *d_qkv.permute(2, 0, 3, 1, 4), *d_bias


def exact(qkv, bias, lengths, scale, d_o, factors=1.0):
    """Return the same of `eager` in fp64."""
    qkv, bias, d_o = (x if x is None else x.double() for x in (qkv, bias, d_o))
    return with_gradients(partial(eager, factors=factors), qkv, bias, lengths, scale, d_o)


def assert_close(found, expected, bound):
    """Compare output and gradients by their relative errors.

    A gradient that is exactly zero, as for a single key, may be as wrong as the output.
    """
    floor = torch.linalg.norm(expected[0])
    for name, actual, wanted in zip(
        ("o", "dq", "dk", "dv", "dbias"), found, expected, strict=False
    ):
        assert actual.shape == wanted.shape, name
        error = torch.linalg.norm(actual.double() - wanted)  # nan fails too
        assert error <= bound * max(torch.linalg.norm(wanted), floor), f"{name}: {error}"
