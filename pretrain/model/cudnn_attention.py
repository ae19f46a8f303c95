"""Attention with a learned bias that the whole batch shares, by NVIDIA cuDNN.

cuDNN's fused attention takes a bias [1, N, S, S] and returns its gradient, summed over the batch
(dBias); torch's `scaled_dot_product_attention` does not ask it for that. Here it is asked through
the package nvidia-cudnn-frontend, as a graph of one operation for each pass, built once for each
layout of the tensors. The operators are registered with torch.library, so that torch.compile sees
single nodes.

To know before choosing it: for dBias cuDNN writes the gradient of the scores out in its workspace,
BNSS in the queries' type, and adds in an order of its own: no promise of the same bits twice.

**State of proof**: cuDNN accepts these graphs and builds their operations for a described sm_80,
sm_90 and sm_100, and the wiring of the gradients is tested against a stand-in. It has not been run
on a GPU yet; a run that chooses it tries it against the reference before it starts.

Shape letters as in positions.py; 1: a dimension that cuDNN wants to see.
"""

import functools
import math
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

DTYPES = (torch.bfloat16, torch.float16)


class Layout(NamedTuple):
    """What a graph is built for."""

    shape: tuple[int, ...]  # BNSH
    strides: tuple[tuple[int, ...], ...]  # of q, k and v
    dtype: torch.dtype
    has_lengths: bool
    scale: float


class Plan(NamedTuple):
    """A graph, and its tensors in the order in which they are given to it."""

    graph: Any
    tensors: list[Any]


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
    with _device_of(q_BNSH):
        _execute(forward_plan(layout, q_BNSH.get_device()), [*inputs, *outputs])
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
) -> list[Tensor]:
    """Return dQ, dK and dV (contiguous as BSNH), and dBias if it is needed."""
    outputs = _backward_outputs(q_BNSH, bias_NSS, needs_bias_gradient)
    layout, inputs = _prepare(q_BNSH, k_BNSH, v_BNSH, bias_NSS, lengths_B, scale)
    inputs += [_in_order_BSNH(o_BNSH), _in_order_BSNH(d_o_BNSH), logsumexp_BNS1]
    d_qkv, d_bias = outputs[:3], [d_bias_NSS.unsqueeze(0) for d_bias_NSS in outputs[3:]]
    with _device_of(q_BNSH):
        plan = backward_plan(layout, q_BNSH.get_device(), needs_bias_gradient)
        _execute(plan, [*inputs, *d_qkv, *d_bias])
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


@functools.lru_cache
def forward_plan(layout: Layout, device: int) -> Plan:
    """Build the forward pass for a GPU, given by its number."""
    return _built(forward_graph(layout, handle=_handle(device)))


@functools.lru_cache
def backward_plan(layout: Layout, device: int, needs_bias_gradient: bool) -> Plan:
    """Build the backward pass for a GPU, given by its number."""
    return _built(backward_graph(layout, needs_bias_gradient, handle=_handle(device)))


def forward_graph(layout: Layout, **target: Any) -> Plan:
    """Describe the forward pass, from q, k, v, bias (and lengths) to output and logsumexp.

    Args:
        layout: what it is built for.
        target: the handle of a GPU, or what else `cudnn.pygraph` takes to know it.
    """
    graph, inputs, options = _graph_with_inputs(layout, target)
    output, logsumexp = graph.sdpa(**options, generate_stats=True)
    _set_output(output, layout.shape, _strides_BSNH(layout.shape))
    rows = (*layout.shape[:3], 1)
    _set_output(logsumexp, rows, _strides(rows)).set_data_type(torch.float32)
    return Plan(graph, [*inputs, output, logsumexp])


def backward_graph(layout: Layout, needs_bias_gradient: bool, **target: Any) -> Plan:
    """Describe the backward pass, from the same inputs, output, dO, logsumexp to dQ, dK, dV, dBias.

    Args:
        layout: what it is built for.
        needs_bias_gradient: whether dBias is asked for.
        target: see `forward_graph`.
    """
    graph, inputs, options = _graph_with_inputs(layout, target)
    strides, rows = _strides_BSNH(layout.shape), (*layout.shape[:3], 1)
    output = _tensor(graph, "o", layout.shape, strides, layout.dtype)
    d_output = _tensor(graph, "dO", layout.shape, strides, layout.dtype)
    # cuDNN before 9.26 misreads a logsumexp that is not contiguous.
    logsumexp = _tensor(graph, "stats", rows, _strides(rows), torch.float32)
    d_bias = []
    if needs_bias_gradient:
        shape = _bias_shape(layout)
        d_bias = [_tensor(graph, "dBias", shape, _strides(shape), layout.dtype)]
        options["dBias"] = _set_output(d_bias[0], shape, _strides(shape))
    gradients = graph.sdpa_backward(**options, o=output, dO=d_output, stats=logsumexp)
    for gradient in gradients:
        _set_output(gradient, layout.shape, strides)
    return Plan(graph, [*inputs, output, d_output, logsumexp, *gradients, *d_bias])


def _graph_with_inputs(
    layout: Layout, target: dict[str, Any]
) -> tuple[Any, list[Any], dict[str, Any]]:
    """Return a graph, the tensors that both passes read, and the arguments that they stand for."""
    import cudnn

    types = {torch.bfloat16: cudnn.data_type.BFLOAT16, torch.float16: cudnn.data_type.HALF}
    graph = cudnn.pygraph(
        io_data_type=types[layout.dtype],
        intermediate_data_type=cudnn.data_type.FLOAT,
        compute_data_type=cudnn.data_type.FLOAT,
        **target,
    )
    shape = _bias_shape(layout)
    tensors = {
        name: _tensor(graph, name, layout.shape, strides, layout.dtype)
        for name, strides in zip("qkv", layout.strides, strict=True)
    }
    tensors["bias"] = _tensor(graph, "bias", shape, _strides(shape), layout.dtype)
    options = {}
    if layout.has_lengths:
        options["use_padding_mask"] = True
        for name in ("seq_len_q", "seq_len_kv"):
            lengths = (layout.shape[0], 1, 1, 1)
            tensors[name] = _tensor(graph, name, lengths, _strides(lengths), torch.int32)
    return graph, list(tensors.values()), {**tensors, **options, "attn_scale": layout.scale}


def _tensor(
    graph: Any, name: str, shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype
) -> Any:
    return graph.tensor(name=name, dim=list(shape), stride=list(strides), data_type=dtype)


def _set_output(tensor: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    return tensor.set_output(True).set_dim(list(shape)).set_stride(list(strides))


def _built(plan: Plan) -> Plan:
    import cudnn

    plan.graph.build([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    return plan


@functools.lru_cache
def _handle(device: int) -> Any:
    """Return cuDNN's state for the current GPU, which is `device`."""
    import cudnn

    del device
    return cudnn.create_handle()


def _execute(plan: Plan, tensors: list[Tensor]) -> None:
    import cudnn

    device = tensors[0].get_device()
    stream = torch.cuda.current_stream(device).cuda_stream
    cudnn.set_stream(handle=_handle(device), stream=stream)
    workspace = tensors[0].new_empty(plan.graph.get_workspace_size(), dtype=torch.uint8)
    plan.graph.execute(
        dict(zip(plan.tensors, tensors, strict=True)), workspace, handle=_handle(device)
    )


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
    return _like_BSNH(q_BNSH), q_BNSH.new_empty((*q_BNSH.shape[:3], 1), dtype=torch.float32)


def _backward_outputs(q_BNSH: Tensor, bias_NSS: Tensor, needs_bias_gradient: bool) -> list[Tensor]:
    gradients = [_like_BSNH(q_BNSH) for _ in range(3)]
    return [*gradients, torch.empty_like(bias_NSS)] if needs_bias_gradient else gradients


def _device_of(x: Tensor) -> AbstractContextManager[None]:
    """Make the GPU of x the current one, for cuDNN's handle and kernels."""
    return cast(AbstractContextManager[None], torch.cuda.device_of(x))  # type: ignore[no-untyped-call]


def _like_BSNH(x_BNSH: Tensor) -> Tensor:
    """Return BNSH over memory in the order BSNH, so that joining the heads needs no copy."""
    batch, heads, length, head_width = x_BNSH.shape
    return x_BNSH.new_empty((batch, length, heads, head_width)).transpose(1, 2)


def _in_order_BSNH(x_BNSH: Tensor) -> Tensor:
    """Return x itself where possible; the gradient of a sum, say, has stride 0 everywhere."""
    return x_BNSH.transpose(1, 2).contiguous().transpose(1, 2)


def _bias_shape(layout: Layout) -> tuple[int, ...]:
    _, heads, length, _ = layout.shape
    return (1, heads, length, length)


def _strides_BSNH(shape: tuple[int, ...]) -> tuple[int, ...]:
    _, heads, length, head_width = shape
    return (length * heads * head_width, head_width, heads * head_width, 1)


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return those of a contiguous tensor."""
    return tuple(math.prod(shape[place + 1 :]) for place in range(len(shape)))
