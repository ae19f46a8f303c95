"""Attention with a learnable bias that the whole batch shares, by Triton kernels.

TUPE adds the same bias_NSS to the scores of every sequence and layer, and learns it. PyTorch's
fused attention either refuses a mask that needs a gradient or writes that gradient once per
sequence (BNSS) and sums it afterwards. Here no tensor of the size BNSS is stored:

* forward: online softmax over tiles of keys; the output and the logsumexp of each row are saved
  (Dao et al. 2022, "FlashAttention", arXiv:2205.14135; Dao 2023, arXiv:2307.08691);
* backward: with P the attention weights, dP = dO v^T, D = rowsum(o * dO) and dS = P * (dP - D),
  one kernel for dQ = scale dS k (and D), one for dK = scale dS^T q and dV = P^T dO, and one for
  dBias = the sum of dS over the batch. Each recomputes the tiles of P that it needs;
* dropout: what it drops is a function of the place of a weight and of two random seeds per head
  and sequence, which every kernel evaluates again (`triton_tiles.drop`). With M = 1 for the
  survivors and r their share, o = (M * P / r) v, dV = (M * P / r)^T dO and dP = M * (dO v^T) / r.
  dS = P * (dP - D) as before, with the same D: the derivative of softmax takes from dP_ij the sum
  over j of P_ij dP_ij, which is the sum of dO_i . (M_ij P_ij / r) v_j, and that is dO_i . o_i;
* dBias: a program sums one tile of the bias of one head over a fixed share of the batch, in
  registers. That costs two more products than atomic additions, and is deterministic, as are the
  other kernels.

Queries, keys and values are read from the one tensor BS3NH that their projection writes, and their
gradients are written to one like it: torch would copy three gradients of views into it. The
operators are registered with torch.library, so that torch.compile sees single nodes.

**Tested**: values and gradients against fp64 in Triton's interpreter and on an H200; registers and
shared memory by the compiler for sm_80, 86, 89, 90, 100 and 120. No other GPU has run them.

Shape letters as in positions.py.
"""

from contextlib import AbstractContextManager
from typing import Any, cast

import torch
from torch import Tensor

from pretrain.model.kernels import triton_kernels
from pretrain.model.kernels.triton_tilings import HEAD_WIDTHS, Tiling, Tilings, tilings

# Programs that the bias gradient is split into, if the batch allows: two for each of the 132
# multiprocessors of an H100. A constant: the order of a sum must not depend on the device.
BIAS_GRADIENT_PROGRAMS = 264


def triton_attention(
    qkv_BS3NH: Tensor,
    bias_NSS: Tensor | None,
    lengths_B: Tensor | None,
    scale: float,
    dropout: float = 0.0,
    read_bias_2NSS: Tensor | None = None,
) -> Tensor:
    """Return softmax(scale q k^T + bias) v, shape BNSH, differentiable in qkv and the bias.

    The result is contiguous as BSNH, so that joining the heads needs no copy. The bias may have any
    float dtype; -inf is allowed if every query keeps a finite score. Its gradient is summed in fp32
    and returned in its dtype. What is read instead is `read_bias_2NSS`, made of it by
    `bias_as_read`: here, or by a caller with several layers once for all of them. lengths_B (int32,
    on the device, each at least 1, unchecked: reading it would synchronise) hides the keys from
    lengths_B[b] on; queries there are computed like any other. `dropout` of the weights, chosen by
    torch's generator of the device, are dropped and the others scaled up.
    """
    batch, length, _, heads, head_width = qkv_BS3NH.shape
    runs = head_width in HEAD_WIDTHS and (qkv_BS3NH.is_cuda or triton_kernels.interpreted())
    assert runs, "refused by execution.py"
    assert bias_NSS is None or bias_NSS.shape == (heads, length, length)
    assert lengths_B is None or (lengths_B.shape, lengths_B.dtype) == ((batch,), torch.int32)
    seeds_BN2 = None
    if dropout:
        # On the device: nothing waits, torch.compile knows it as random, and a block that is
        # computed again draws the same.
        seeds_BN2 = torch.randint(
            2**31, (batch, heads, 2), dtype=torch.int32, device=qkv_BS3NH.device
        )
    if bias_NSS is not None and read_bias_2NSS is None:
        read_bias_2NSS = bias_as_read(bias_NSS, qkv_BS3NH.dtype)
    o_BSNH: Tensor = attention_forward(
        qkv_BS3NH, bias_NSS, read_bias_2NSS, lengths_B, seeds_BN2, scale, dropout
    )[0]
    return o_BSNH.transpose(1, 2)


@torch.no_grad()
def bias_as_read(bias_NSS: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the bias as the kernels read it, and transposed: times log2(e), rounded to a dtype.

    Every sequence reads it again: in bf16 it is half as much, and rounded as for other kernels.
    """
    both_2NSS = torch.stack((bias_NSS, bias_NSS.mT)).float()
    return both_2NSS.mul_(triton_kernels.LOG2_E.value).to(dtype)


@torch.library.custom_op("tupelo::attention_forward", mutates_args=())
def attention_forward(
    qkv_BS3NH: Tensor,
    bias_NSS: Tensor | None,
    read_bias_2NSS: Tensor | None,
    lengths_B: Tensor | None,
    seeds_BN2: Tensor | None,
    scale: float,
    dropout: float,
) -> tuple[Tensor, Tensor]:
    """Return o_BSNH and, per row, the base-2 logarithm of the sum of exponentials (BNS).

    bias_NSS is not read: it is there for its gradient, which would be rounded to bf16 in each layer
    and in their sum if it were that of `read_bias_2NSS`.
    """
    batch, length, _, heads, _ = qkv_BS3NH.shape
    qkv_BS3NH = qkv_BS3NH.contiguous()
    o_BSNH, logsumexp_BNS = _forward_outputs(qkv_BS3NH)
    with _device_of(qkv_BS3NH):
        tiling = _tilings_for(qkv_BS3NH).forward
        triton_kernels.forward_kernel[-(-length // tiling.queries), heads, batch](
            *(qkv_BS3NH, read_bias_2NSS, lengths_B, seeds_BN2, o_BSNH, logsumexp_BNS),
            *(heads, length, scale),
            **_constants(tiling, qkv_BS3NH, lengths_B, dropout),
        )
    return o_BSNH, logsumexp_BNS


@torch.library.custom_op("tupelo::attention_backward", mutates_args=())
def attention_backward(
    qkv_BS3NH: Tensor,
    read_bias_2NSS: Tensor | None,
    lengths_B: Tensor | None,
    seeds_BN2: Tensor | None,
    scale: float,
    dropout: float,
    o_BSNH: Tensor,
    logsumexp_BNS: Tensor,
    d_o_BSNH: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return dQ, dK and dV as one tensor BS3NH and, for the bias, r D of each row (BNS)."""
    batch, length, _, heads, _ = qkv_BS3NH.shape
    qkv_BS3NH, o_BSNH, d_o_BSNH = (x.contiguous() for x in (qkv_BS3NH, o_BSNH, d_o_BSNH))
    d_qkv_BS3NH, row_products_BNS = _backward_outputs(qkv_BS3NH)
    with _device_of(qkv_BS3NH):
        tiling = _tilings_for(qkv_BS3NH).query_gradient
        triton_kernels.query_gradient_kernel[-(-length // tiling.queries), heads, batch](
            *(qkv_BS3NH, read_bias_2NSS, lengths_B, seeds_BN2, o_BSNH, d_o_BSNH),
            *(logsumexp_BNS, row_products_BNS, d_qkv_BS3NH, heads, length, scale),
            **_constants(tiling, qkv_BS3NH, lengths_B, dropout),
        )
        tiling = _tilings_for(qkv_BS3NH).key_value_gradient
        triton_kernels.key_value_gradient_kernel[-(-length // tiling.keys), heads, batch](
            *(qkv_BS3NH, read_bias_2NSS, lengths_B, seeds_BN2, d_o_BSNH),
            *(logsumexp_BNS, row_products_BNS, d_qkv_BS3NH, heads, length, scale),
            **_constants(tiling, qkv_BS3NH, lengths_B, dropout),
        )
    return d_qkv_BS3NH, row_products_BNS


@torch.library.custom_op("tupelo::attention_bias_gradient", mutates_args=())
def attention_bias_gradient(
    qkv_BS3NH: Tensor,
    read_bias_2NSS: Tensor,
    lengths_B: Tensor | None,
    seeds_BN2: Tensor | None,
    scale: float,
    dropout: float,
    logsumexp_BNS: Tensor,
    d_o_BSNH: Tensor,
    row_products_BNS: Tensor,
) -> Tensor:
    """Return the gradient of the bias in fp32, summed over the batch in a fixed order."""
    batch, length, _, heads, _ = qkv_BS3NH.shape
    qkv_BS3NH, d_o_BSNH = qkv_BS3NH.contiguous(), d_o_BSNH.contiguous()
    with _device_of(qkv_BS3NH):
        tiling = _tilings_for(qkv_BS3NH).bias_gradient
        num_tiles = -(-length // tiling.queries) * -(-length // tiling.keys)
        wanted_splits = -(-BIAS_GRADIENT_PROGRAMS // (num_tiles * heads))
        split_size = -(-batch // min(batch, wanted_splits))
        num_splits = -(-batch // split_size)
        partial_sums_NSS = qkv_BS3NH.new_empty(
            (num_splits, heads, length, length), dtype=torch.float32
        )
        triton_kernels.bias_gradient_kernel[num_tiles, heads, num_splits](
            *(qkv_BS3NH, read_bias_2NSS, lengths_B, seeds_BN2, d_o_BSNH),
            *(logsumexp_BNS, row_products_BNS, partial_sums_NSS),
            *(batch, split_size, heads, length, scale),
            **_constants(tiling, qkv_BS3NH, lengths_B, dropout),
        )
    return partial_sums_NSS[0] if num_splits == 1 else partial_sums_NSS.sum(0)


@attention_forward.register_fake
def _forward_outputs(qkv_BS3NH: Tensor, *_others: Any) -> tuple[Tensor, Tensor]:
    batch, length, _, heads, head_width = qkv_BS3NH.shape
    o_BSNH = qkv_BS3NH.new_empty((batch, length, heads, head_width))
    return o_BSNH, qkv_BS3NH.new_empty((batch, heads, length), dtype=torch.float32)


@attention_backward.register_fake
def _backward_outputs(qkv_BS3NH: Tensor, *_others: Any) -> tuple[Tensor, Tensor]:
    return qkv_BS3NH.new_empty(qkv_BS3NH.shape), _forward_outputs(qkv_BS3NH)[1]


@attention_bias_gradient.register_fake
def _bias_gradient_output(_: Tensor, read_bias_2NSS: Tensor, *_others: Any) -> Tensor:
    return read_bias_2NSS.new_empty(read_bias_2NSS.shape[1:], dtype=torch.float32)


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    qkv_BS3NH, _, *tensors, ctx.scale, ctx.dropout = inputs
    ctx.save_for_backward(qkv_BS3NH, *tensors, *output)


def _differentiate(ctx: Any, d_o_BSNH: Tensor, d_logsumexp_BNS: Tensor) -> tuple[Any, ...]:
    del d_logsumexp_BNS  # `triton_attention` does not return it
    *inputs, o_BSNH, logsumexp_BNS = ctx.saved_tensors
    d_qkv_BS3NH, row_products_BNS = attention_backward(
        *inputs, ctx.scale, ctx.dropout, o_BSNH, logsumexp_BNS, d_o_BSNH
    )
    d_bias_NSS = None
    if ctx.needs_input_grad[1]:
        d_bias_NSS = attention_bias_gradient(
            *inputs, ctx.scale, ctx.dropout, logsumexp_BNS, d_o_BSNH, row_products_BNS
        )
    return d_qkv_BS3NH, d_bias_NSS, None, None, None, None, None


attention_forward.register_autograd(_differentiate, setup_context=_save_for_backward)


def _tilings_for(qkv_BS3NH: Tensor) -> Tilings:
    return tilings(qkv_BS3NH.shape[-1], qkv_BS3NH.dtype, triton_kernels.architecture())


def _constants(
    tiling: Tiling, qkv_BS3NH: Tensor, lengths_B: Tensor | None, dropout: float
) -> dict[str, int]:
    """Return the compile-time constants of a kernel."""
    whole = qkv_BS3NH.shape[1] % max(tiling.queries, tiling.keys) == 0
    return {
        "HEAD_WIDTH": qkv_BS3NH.shape[-1],
        "NUM_QUERIES": tiling.queries,
        "NUM_KEYS": tiling.keys,
        "WHOLE": whole,
        "HIDE": lengths_B is not None or not whole,
        "NUM_DROPPED": round(dropout * 2**32),
        "num_warps": tiling.warps,
        "num_stages": tiling.stages,
    }


def _device_of(x: Tensor) -> AbstractContextManager[None]:
    """Make the GPU of x current, where kernels start; without effect for a tensor on a CPU."""
    return cast(AbstractContextManager[None], torch.cuda.device_of(x))  # type: ignore[no-untyped-call]
