"""Attention with a learned bias that the whole batch shares, by NVIDIA cuDNN.

cuDNN's fused attention takes a bias [1, N, S, S] and returns its gradient, summed over the batch
(dBias); torch's `scaled_dot_product_attention` does not ask it for that. Here it is asked, see
cudnn_graphs.py. The operators are registered with torch.library, so that torch.compile sees single
nodes.

To know before choosing it: for dBias cuDNN keeps the gradient of the scores in its workspace, BNSS
in the queries' type; and it is not asked for the same bits twice, which with dBias its kernels for
Blackwell do not offer.

**State of proof**: cuDNN 9.20 proposes kernels for these graphs, for GPUs that are described to it
(sm_80, sm_90, sm_100) on a machine with an empty library in the driver's place; the wiring of the
gradients is tested against a stand-in. None of it has been run on a GPU yet. A run that chooses it
tries it against the reference before it starts.

Shape letters as in positions.py; 1: a dimension that cuDNN wants to see.
"""

from typing import Any, List  # noqa: UP035

import torch
from torch import Tensor

from pretrain.model.cudnn_graphs import Layout, backward_plan, execute, forward_plan
from pretrain.model.kernel_tensors import device_of, like_BSNH

DTYPES = (torch.bfloat16, torch.float16)


def cudnn_attention(
    q_BNSH: Tensor,
    k_BNSH: Tensor,
    v_BNSH: Tensor,
    bias_NSS: Tensor,
    lengths_B: Tensor | None,
    scale: float,
) -> Tensor:
    """Return softmax(scale q k^T + bias) v, shape BNSH, differentiable in all four tensors.

    q, k and v may be any views whose last dimension is contiguous; the result is contiguous as
    BSNH. The bias is read in the queries' type, and its gradient returned in the bias's own.
    lengths_B (int32, each at least 1) hides the keys from lengths_B[b] on; queries there are
    computed like any other. No dropout.

    Raises:
        ValueError: a type that cuDNN's fused attention does not have.
    """
    if q_BNSH.dtype not in DTYPES:
        raise ValueError(f"queries are {q_BNSH.dtype}: cuDNN's attention takes one of {DTYPES}")
    # cuDNN has misread an fp32 bias without an error, pytorch#191612.
    bias_NSS = bias_NSS.to(q_BNSH.dtype).contiguous()
    o_BNSH: Tensor = attention_forward(q_BNSH, k_BNSH, v_BNSH, bias_NSS, lengths_B, scale)[0]
    return o_BNSH


@torch.library.custom_op("tupelo::cudnn_attention_forward", mutates_args=())
def attention_forward(
    q_BNSH: Tensor,
    k_BNSH: Tensor,
    v_BNSH: Tensor,
    bias_NSS: Tensor,
    lengths_B: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Return the output and the logsumexp of each row (BNS1)."""
    outputs = _forward_outputs(q_BNSH)
    layout, inputs = _prepare(q_BNSH, k_BNSH, v_BNSH, bias_NSS, lengths_B, scale)
    with device_of(q_BNSH):
        execute(forward_plan(layout, q_BNSH.get_device()), [*inputs, *outputs])
    return outputs


@torch.library.custom_op("tupelo::cudnn_attention_backward", mutates_args=())
def attention_backward(
    q_BNSH: Tensor,
    k_BNSH: Tensor,
    v_BNSH: Tensor,
    bias_NSS: Tensor,
    lengths_B: Tensor | None,
    scale: float,
    o_BNSH: Tensor,
    logsumexp_BNS1: Tensor,
    d_o_BNSH: Tensor,
    needs_bias_gradient: bool,
) -> List[Tensor]:  # noqa: UP006 - torch 2.6 does not know list[Tensor]
    """Return dQ, dK and dV (contiguous as BSNH), and dBias if it is needed."""
    outputs = _backward_outputs(q_BNSH, bias_NSS, needs_bias_gradient)
    layout, inputs = _prepare(q_BNSH, k_BNSH, v_BNSH, bias_NSS, lengths_B, scale)
    inputs += [_in_order_BSNH(o_BNSH), _in_order_BSNH(d_o_BNSH), logsumexp_BNS1]
    d_qkv, d_bias = outputs[:3], [d_bias_NSS.unsqueeze(0) for d_bias_NSS in outputs[3:]]
    with device_of(q_BNSH):
        plan = backward_plan(layout, q_BNSH.get_device(), needs_bias_gradient)
        execute(plan, [*inputs, *d_qkv, *d_bias])
    return outputs


@attention_forward.register_fake
def _forward_fake(q_BNSH: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    del others
    return _forward_outputs(q_BNSH)


@attention_backward.register_fake
def _backward_fake(q_BNSH: Tensor, *others: Any) -> list[Tensor]:
    return _backward_outputs(q_BNSH, others[2], others[-1])


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.scale = inputs
    ctx.save_for_backward(*tensors, *output)


def _differentiate(ctx: Any, d_o_BNSH: Tensor, d_logsumexp_BNS1: Tensor) -> tuple[Any, ...]:
    del d_logsumexp_BNS1  # `cudnn_attention` keeps it to itself
    *inputs, o_BNSH, logsumexp_BNS1 = ctx.saved_tensors
    d_q_BNSH, d_k_BNSH, d_v_BNSH, *d_bias = attention_backward(
        *inputs, ctx.scale, o_BNSH, logsumexp_BNS1, d_o_BNSH, ctx.needs_input_grad[3]
    )
    return d_q_BNSH, d_k_BNSH, d_v_BNSH, d_bias[0] if d_bias else None, None, None


attention_forward.register_autograd(_differentiate, setup_context=_save_for_backward)


def _prepare(
    q_BNSH: Tensor,
    k_BNSH: Tensor,
    v_BNSH: Tensor,
    bias_NSS: Tensor,
    lengths_B: Tensor | None,
    scale: float,
) -> tuple[Layout, list[Tensor]]:
    """Return what identifies the graph, and the tensors that both passes read."""
    qkv = [q_BNSH, k_BNSH, v_BNSH]
    strides = tuple(tensor.stride() for tensor in qkv)
    layout = Layout(tuple(q_BNSH.shape), strides, q_BNSH.dtype, lengths_B is not None, scale)
    inputs = [*qkv, bias_NSS.unsqueeze(0)]
    if lengths_B is not None:
        lengths_B111 = lengths_B.view(-1, 1, 1, 1)
        inputs += [torch.full_like(lengths_B111, q_BNSH.shape[2]), lengths_B111]
    return layout, inputs


def _forward_outputs(q_BNSH: Tensor) -> tuple[Tensor, Tensor]:
    return like_BSNH(q_BNSH), q_BNSH.new_empty((*q_BNSH.shape[:3], 1), dtype=torch.float32)


def _backward_outputs(q_BNSH: Tensor, bias_NSS: Tensor, needs_bias_gradient: bool) -> list[Tensor]:
    gradients = [like_BSNH(q_BNSH) for _ in range(3)]
    return [*gradients, torch.empty_like(bias_NSS)] if needs_bias_gradient else gradients


def _in_order_BSNH(x_BNSH: Tensor) -> Tensor:
    """Return x itself where possible; the gradient of a sum, say, has stride 0 everywhere."""
    return x_BNSH.transpose(1, 2).contiguous().transpose(1, 2)
