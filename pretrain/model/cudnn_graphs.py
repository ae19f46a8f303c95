"""The graphs by which cuDNN is asked for attention with a bias, forward and backward.

Through the package nvidia-cudnn-frontend (imported as `cudnn`, and only when it is used): a graph
of one operation for each pass, built once for each layout of the tensors. What dBias, the lengths
and the logsumexp must look like is in the headers that the package ships
(cudnn_frontend/node/scaled_dot_product_flash_attention.h).

Shape letters as in positions.py.
"""

import functools
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor


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


@functools.lru_cache
def forward_plan(layout: Layout, device: int) -> Plan:
    """Build the forward pass for a GPU, given by its number."""
    return _built(forward_graph(layout, handle=_handle(device)))


@functools.lru_cache
def backward_plan(layout: Layout, device: int, needs_bias_gradient: bool) -> Plan:
    """Build the backward pass for a GPU, given by its number."""
    return _built(backward_graph(layout, needs_bias_gradient, handle=_handle(device)))


def execute(plan: Plan, tensors: list[Tensor]) -> None:
    """Run a plan on the current stream of the tensors' GPU."""
    import cudnn

    device = tensors[0].get_device()
    stream = torch.cuda.current_stream(device).cuda_stream
    cudnn.set_stream(handle=_handle(device), stream=stream)
    workspace = tensors[0].new_empty(plan.graph.get_workspace_size(), dtype=torch.uint8)
    plan.graph.execute(
        dict(zip(plan.tensors, tensors, strict=True)), workspace, handle=_handle(device)
    )


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


def _bias_shape(layout: Layout) -> tuple[int, ...]:
    _, heads, length, _ = layout.shape
    return (1, heads, length, length)


def _strides_BSNH(shape: tuple[int, ...]) -> tuple[int, ...]:
    _, heads, length, head_width = shape
    return (length * heads * head_width, head_width, heads * head_width, 1)


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return those of a contiguous tensor."""
    return tuple(math.prod(shape[place + 1 :]) for place in range(len(shape)))
