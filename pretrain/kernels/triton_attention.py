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

The operators are registered with torch.library, so that torch.compile sees single nodes. At the end
of the file is the allocation of outputs, as BSNH in memory.

**Tested**: values and gradients against fp64 in Triton's interpreter; registers and shared memory
by the compiler for sm_80, 86, 89, 90, 100 and 120. The kernels have not run on a GPU yet.

Shape letters as in positions.py.
"""

from contextlib import AbstractContextManager
from typing import Any, cast

import torch
from torch import Tensor

from pretrain.kernels import triton_kernels
from pretrain.kernels.triton_tilings import HEAD_WIDTHS, Tiling, Tilings, tilings

DTYPES = (torch.float16, torch.bfloat16, torch.float32)

# Programs that the bias gradient is split into, if the batch allows: two for each of the 132
# multiprocessors of an H100. A constant: the order of a sum must not depend on the device.
BIAS_GRADIENT_PROGRAMS = 264


def triton_attention(
    q_BNSH: Tensor,
    k_BNSH: Tensor,
    v_BNSH: Tensor,
    bias_NSS: Tensor | None,
    lengths_B: Tensor | None,
    scale: float,
    dropout: float = 0.0,
) -> Tensor:
    """Return softmax(scale q k^T + bias) v, shape BNSH, differentiable in all four tensors.

    q, k and v may be any views whose last dimension is contiguous; the result is contiguous as
    BSNH. The bias may have any float dtype and is rounded to that of q; -inf is allowed if every
    query keeps a finite score. Its gradient is summed in fp32 and returned in its dtype. lengths_B
    (int32, on the device, each at least 1, unchecked: reading it would synchronise) hides the keys
    from lengths_B[b] on; queries there are computed like any other. `dropout` of the weights,
    chosen by torch's generator of the device, are dropped and the others scaled up.

    Raises:
        ValueError: a shape, dtype, head width or device that the kernels do not support.
    """
    _check(q_BNSH, k_BNSH, v_BNSH, bias_NSS, lengths_B)
    batch, heads = q_BNSH.shape[:2]
    seeds_BN2 = None
    if dropout:
        # On the device: nothing waits, torch.compile knows it as random, and a block that is
        # computed again draws the same.
        seeds_BN2 = torch.randint(2**31, (batch, heads, 2), dtype=torch.int32, device=q_BNSH.device)
    o_BNSH: Tensor = attention_forward(
        q_BNSH, k_BNSH, v_BNSH, bias_NSS, lengths_B, seeds_BN2, scale, dropout
    )[0]
    return o_BNSH


def _check(
    q_BNSH: Tensor,
    k_BNSH: Tensor,
    v_BNSH: Tensor,
    bias_NSS: Tensor | None,
    lengths_B: Tensor | None,
) -> None:
    batch, heads, length, head_width = q_BNSH.shape
    if not q_BNSH.shape == k_BNSH.shape == v_BNSH.shape:
        raise ValueError(
            f"q, k and v must have one shape, not {tuple(q_BNSH.shape)}, {tuple(k_BNSH.shape)} "
            f"and {tuple(v_BNSH.shape)}"
        )
    if head_width not in HEAD_WIDTHS:
        raise ValueError(
            f"head width {head_width}: the Triton kernels support {HEAD_WIDTHS}; choose another "
            "number of heads, or attention without Triton"
        )
    if not q_BNSH.dtype == k_BNSH.dtype == v_BNSH.dtype or q_BNSH.dtype not in DTYPES:
        raise ValueError(
            f"q, k and v must have one dtype of {DTYPES}, not {q_BNSH.dtype}, {k_BNSH.dtype} "
            f"and {v_BNSH.dtype}"
        )
    if bias_NSS is not None and bias_NSS.shape != (heads, length, length):
        raise ValueError(
            f"bias of shape {tuple(bias_NSS.shape)}: expected {(heads, length, length)}"
        )
    if lengths_B is not None and (lengths_B.shape != (batch,) or lengths_B.dtype != torch.int32):
        raise ValueError(
            f"lengths: {lengths_B.dtype} of shape {tuple(lengths_B.shape)}; expected torch.int32 "
            f"of shape {(batch,)}"
        )
    if not (q_BNSH.is_cuda or triton_kernels.interpreted()):
        raise ValueError(
            f"tensors on {q_BNSH.device}: compiled Triton kernels need an NVIDIA GPU; choose "
            "attention without Triton, or set TRITON_INTERPRET=1 before Python starts (slow)"
        )


@torch.library.custom_op("tupelo::attention_forward", mutates_args=())
def attention_forward(
    q_BNSH: Tensor,
    k_BNSH: Tensor,
    v_BNSH: Tensor,
    bias_NSS: Tensor | None,
    lengths_B: Tensor | None,
    seeds_BN2: Tensor | None,
    scale: float,
    dropout: float,
) -> tuple[Tensor, Tensor]:
    """Return the output and, per row, the base-2 logarithm of the sum of exponentials (BNS)."""
    batch, heads, length, _ = q_BNSH.shape
    q_BNSH, k_BNSH, v_BNSH = map(_with_unit_stride, (q_BNSH, k_BNSH, v_BNSH))
    bias_NSS = None if bias_NSS is None else _as_read(bias_NSS, q_BNSH.dtype)
    o_BNSH, logsumexp_BNS = _forward_outputs(q_BNSH)
    with _device_of(q_BNSH):
        tiling = _tilings_for(q_BNSH).forward
        triton_kernels.forward_kernel[-(-length // tiling.queries), heads, batch](
            *(q_BNSH, k_BNSH, v_BNSH, bias_NSS, lengths_B, seeds_BN2, o_BNSH, logsumexp_BNS),
            *_strides(q_BNSH, k_BNSH, v_BNSH, bias_NSS),
            *(heads, length, scale),
            **_constants(tiling, q_BNSH, lengths_B, dropout),
        )
    return o_BNSH, logsumexp_BNS


@torch.library.custom_op("tupelo::attention_backward", mutates_args=())
def attention_backward(
    q_BNSH: Tensor,
    k_BNSH: Tensor,
    v_BNSH: Tensor,
    bias_NSS: Tensor | None,
    lengths_B: Tensor | None,
    seeds_BN2: Tensor | None,
    scale: float,
    dropout: float,
    o_BNSH: Tensor,
    logsumexp_BNS: Tensor,
    d_o_BNSH: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return dQ, dK, dV (contiguous as BSNH) and, for the bias, r D of each row (BNS)."""
    batch, heads, length, _ = q_BNSH.shape
    q_BNSH, k_BNSH, v_BNSH = map(_with_unit_stride, (q_BNSH, k_BNSH, v_BNSH))
    o_BNSH, d_o_BNSH = map(_with_unit_stride, (o_BNSH, d_o_BNSH))
    turned_bias_NSS = None
    if bias_NSS is not None:
        turned_bias_NSS = _as_read(bias_NSS.transpose(1, 2), q_BNSH.dtype)
        bias_NSS = _as_read(bias_NSS, q_BNSH.dtype)
    d_q_BNSH, d_k_BNSH, d_v_BNSH, row_products_BNS = _backward_outputs(q_BNSH)
    with _device_of(q_BNSH):
        tiling = _tilings_for(q_BNSH).query_gradient
        triton_kernels.query_gradient_kernel[-(-length // tiling.queries), heads, batch](
            *(q_BNSH, k_BNSH, v_BNSH, bias_NSS, lengths_B, seeds_BN2, o_BNSH, d_o_BNSH),
            *(logsumexp_BNS, row_products_BNS, d_q_BNSH),
            *_strides(q_BNSH, k_BNSH, v_BNSH, bias_NSS, o_BNSH, d_o_BNSH),
            *(heads, length, scale),
            **_constants(tiling, q_BNSH, lengths_B, dropout),
        )
        tiling = _tilings_for(q_BNSH).key_value_gradient
        triton_kernels.key_value_gradient_kernel[-(-length // tiling.keys), heads, batch](
            *(q_BNSH, k_BNSH, v_BNSH, turned_bias_NSS, lengths_B, seeds_BN2, d_o_BNSH),
            *(logsumexp_BNS, row_products_BNS, d_k_BNSH, d_v_BNSH),
            *_strides(q_BNSH, k_BNSH, v_BNSH, turned_bias_NSS, d_o_BNSH),
            *(heads, length, scale),
            **_constants(tiling, q_BNSH, lengths_B, dropout),
        )
    return d_q_BNSH, d_k_BNSH, d_v_BNSH, row_products_BNS


@torch.library.custom_op("tupelo::attention_bias_gradient", mutates_args=())
def attention_bias_gradient(
    q_BNSH: Tensor,
    k_BNSH: Tensor,
    v_BNSH: Tensor,
    bias_NSS: Tensor,
    lengths_B: Tensor | None,
    seeds_BN2: Tensor | None,
    scale: float,
    dropout: float,
    logsumexp_BNS: Tensor,
    d_o_BNSH: Tensor,
    row_products_BNS: Tensor,
) -> Tensor:
    """Return the gradient of the bias, summed over the batch in a fixed order."""
    batch, heads, length, _ = q_BNSH.shape
    q_BNSH, k_BNSH, v_BNSH = map(_with_unit_stride, (q_BNSH, k_BNSH, v_BNSH))
    d_o_BNSH, bias_dtype = _with_unit_stride(d_o_BNSH), bias_NSS.dtype
    bias_NSS = _as_read(bias_NSS, q_BNSH.dtype)
    with _device_of(q_BNSH):
        tiling = _tilings_for(q_BNSH).bias_gradient
        num_tiles = -(-length // tiling.queries) * -(-length // tiling.keys)
        wanted_splits = -(-BIAS_GRADIENT_PROGRAMS // (num_tiles * heads))
        split_size = -(-batch // min(batch, wanted_splits))
        num_splits = -(-batch // split_size)
        partial_sums_NSS = q_BNSH.new_empty(
            (num_splits, heads, length, length), dtype=torch.float32
        )
        triton_kernels.bias_gradient_kernel[num_tiles, heads, num_splits](
            *(q_BNSH, k_BNSH, v_BNSH, bias_NSS, lengths_B, seeds_BN2, d_o_BNSH),
            *(logsumexp_BNS, row_products_BNS, partial_sums_NSS),
            *_strides(q_BNSH, k_BNSH, v_BNSH, bias_NSS, d_o_BNSH),
            *(batch, split_size, heads, length, scale),
            **_constants(tiling, q_BNSH, lengths_B, dropout),
        )
    sum_NSS = partial_sums_NSS[0] if num_splits == 1 else partial_sums_NSS.sum(0)
    return sum_NSS.to(bias_dtype)


@attention_forward.register_fake
def _forward_outputs(q_BNSH: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    del others
    return _empty_BSNH(q_BNSH), q_BNSH.new_empty(q_BNSH.shape[:3], dtype=torch.float32)


@attention_backward.register_fake
def _backward_outputs(q_BNSH: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    del others
    row_products_BNS = q_BNSH.new_empty(q_BNSH.shape[:3], dtype=torch.float32)
    return _empty_BSNH(q_BNSH), _empty_BSNH(q_BNSH), _empty_BSNH(q_BNSH), row_products_BNS


@attention_bias_gradient.register_fake
def _bias_gradient_output(
    q_BNSH: Tensor, k_BNSH: Tensor, v_BNSH: Tensor, bias_NSS: Tensor, *others: Any
) -> Tensor:
    del q_BNSH, k_BNSH, v_BNSH, others
    return bias_NSS.new_empty(bias_NSS.shape)


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.scale, ctx.dropout = inputs
    ctx.save_for_backward(*tensors, *output)


def _differentiate(ctx: Any, d_o_BNSH: Tensor, d_logsumexp_BNS: Tensor) -> tuple[Any, ...]:
    del d_logsumexp_BNS  # `triton_attention` does not return it
    *inputs, o_BNSH, logsumexp_BNS = ctx.saved_tensors
    d_q_BNSH, d_k_BNSH, d_v_BNSH, row_products_BNS = attention_backward(
        *inputs, ctx.scale, ctx.dropout, o_BNSH, logsumexp_BNS, d_o_BNSH
    )
    d_bias_NSS = None
    if ctx.needs_input_grad[3]:
        d_bias_NSS = attention_bias_gradient(
            *inputs, ctx.scale, ctx.dropout, logsumexp_BNS, d_o_BNSH, row_products_BNS
        )
    return d_q_BNSH, d_k_BNSH, d_v_BNSH, d_bias_NSS, None, None, None, None


attention_forward.register_autograd(_differentiate, setup_context=_save_for_backward)


def _with_unit_stride(x: Tensor) -> Tensor:
    """Return x, copied if needed: the gradient of a sum, for example, has stride 0."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _as_read(bias_NSS: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the bias as the kernels read it: contiguous, times log2(e), rounded once to a dtype.

    Every sequence reads it again: in bf16 it is half as much, and rounded as for other kernels.
    """
    read_NSS = torch.empty(bias_NSS.shape, dtype=dtype, device=bias_NSS.device)
    # The type of the arguments is that of the product, before it is written as that of `out`.
    wide_NSS = bias_NSS.to(torch.promote_types(bias_NSS.dtype, torch.float32))
    return torch.mul(wide_NSS, triton_kernels.LOG2_E.value, out=read_NSS)


def _strides(*tensors: Tensor | None) -> list[int]:
    """Return every stride but the last; zeros for a missing bias.

    Raises:
        ValueError: an offset within a head exceeds 32 bits.
    """
    found: list[int] = []
    for tensor in tensors:
        strides = (0, 0) if tensor is None else tensor.stride()[:-1]
        if tensor is not None and tensor.shape[-2] * strides[-1] >= 2**31:
            raise ValueError(
                f"{tensor.shape[-2]} rows with a stride of {strides[-1]} span 2^31 elements or "
                "more within a head; make the tensor contiguous"
            )
        found.extend(strides)
    return found


def _tilings_for(q_BNSH: Tensor) -> Tilings:
    return tilings(q_BNSH.shape[-1], q_BNSH.dtype, triton_kernels.architecture())


def _constants(
    tiling: Tiling, q_BNSH: Tensor, lengths_B: Tensor | None, dropout: float
) -> dict[str, int]:
    """Return the compile-time constants of a kernel."""
    whole = q_BNSH.shape[2] % max(tiling.queries, tiling.keys) == 0
    return {
        "HEAD_WIDTH": q_BNSH.shape[3],
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


def _empty_BSNH(x_BNSH: Tensor) -> Tensor:
    """Allocate BNSH with the memory order BSNH, so that joining the heads needs no copy."""
    batch, heads, length, head_width = x_BNSH.shape
    return x_BNSH.new_empty((batch, length, heads, head_width)).transpose(1, 2)
