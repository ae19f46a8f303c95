"""Attention on a CPU by cpu_kernels.py: whole heads where it multiplies bf16.

Elsewhere the products are torch's, and softmax, bias and the gradients of both are single passes:
scores become weights, and gradients of weights those of scores, where they lie. Shape letters as
in positions.py.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pretrain.kernels.cpu_build import load_cpu_kernels, multiplies


def fused_attention(
    q_BNSH: Tensor,
    k_BNSH: Tensor,
    v_BNSH: Tensor,
    bias_NSS: Tensor | None,
    lengths_B: Tensor | None,
    scale: float,
) -> Tensor:
    """Return softmax(scale q k^T + bias) v.

    Args:
        q_BNSH: queries, fp32 or bf16 like keys and values.
        k_BNSH: keys.
        v_BNSH: values.
        bias_NSS: fp32; its gradient is summed over the batch in fp32.
        lengths_B: number of keys that are no padding (int32, at least 1); None: all.
        scale: of the scores.

    Raises:
        KernelError: this machine cannot have the kernels.
    """
    load_cpu_kernels()
    kind = _WholeHeads if computes_whole_heads(q_BNSH) else _BetweenProducts
    with torch.autocast("cpu", enabled=False):
        mixed_BNSH: Tensor = kind.apply(  # type: ignore[no-untyped-call]
            q_BNSH, k_BNSH, v_BNSH, bias_NSS, lengths_B, scale
        )
    return mixed_BNSH


def computes_whole_heads(q_BNSH: Tensor) -> bool:
    """Return whether there is a kernel for these queries; needs `load_cpu_kernels`."""
    return multiplies(q_BNSH.dtype) and q_BNSH.shape[-1] % 2 == 0


class _WholeHeads(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q_BNSH: Tensor,
        k_BNSH: Tensor,
        v_BNSH: Tensor,
        bias_NSS: Tensor | None,
        lengths_B: Tensor | None,
        scale: float,
    ) -> Tensor:
        heads = [tensor.contiguous() for tensor in (q_BNSH, k_BNSH, v_BNSH)]
        bias_NSS = None if bias_NSS is None else bias_NSS.float().contiguous()
        mixed_BSNH, weights = torch.ops.tupelo.attend_heads(*heads, scale, bias_NSS, lengths_B)
        ctx.save_for_backward(*heads, weights)
        ctx.scale = scale
        mixed_BNSH: Tensor = mixed_BSNH.transpose(1, 2)
        return mixed_BNSH

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        gradient_BSNH = gradients[0].transpose(1, 2).contiguous()
        found = torch.ops.tupelo.attend_heads_backward(
            gradient_BSNH, *ctx.saved_tensors, ctx.scale, ctx.needs_input_grad[3]
        )
        return *found, None, None


class _BetweenProducts(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q_BNSH: Tensor,
        k_BNSH: Tensor,
        v_BNSH: Tensor,
        bias_NSS: Tensor | None,
        lengths_B: Tensor | None,
        scale: float,
    ) -> Tensor:
        # Contiguous keys are transposed without a copy inside the product.
        k_BNSH = k_BNSH.contiguous()
        weights_BNSS = q_BNSH @ k_BNSH.transpose(-1, -2)
        bias_NSS = None if bias_NSS is None else bias_NSS.float().contiguous()
        torch.ops.tupelo.softmax_(weights_BNSS, scale, bias_NSS, lengths_B)
        ctx.save_for_backward(q_BNSH, k_BNSH, v_BNSH, weights_BNSS)
        ctx.scale = scale
        return weights_BNSS @ v_BNSH

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        mixed_gradient_BNSH = gradients[0].contiguous()  # two products read it
        q_BNSH, k_BNSH, v_BNSH, weights_BNSS = ctx.saved_tensors
        has_bias = ctx.needs_input_grad[3]
        gradient_BNSS = mixed_gradient_BNSH @ v_BNSH.transpose(-1, -2)
        bias_gradient_NSS = torch.ops.tupelo.softmax_backward_(
            gradient_BNSS, ctx.scale, weights_BNSS, has_bias
        )
        return (
            gradient_BNSS @ k_BNSH,
            gradient_BNSS.transpose(-1, -2) @ q_BNSH,
            weights_BNSS.transpose(-1, -2) @ mixed_gradient_BNSH,
            bias_gradient_NSS if has_bias else None,
            None,
            None,
        )
