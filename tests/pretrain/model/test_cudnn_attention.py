"""Attention by cuDNN: what is asked of it, against a stand-in; its own check of the graphs."""

import sys
import types

import pytest
import torch

from pretrain.model import cudnn_graphs
from pretrain.model.cudnn_attention import DTYPES, cudnn_attention
from pretrain.model.cudnn_graphs import Layout, backward_graph, forward_graph

BATCH, HEADS, LENGTH, HEAD_WIDTH, SCALE = 3, 2, 24, 16, 0.2


def masked_scores(q, k, bias, seq_len_q, seq_len_kv, scale):
    scores = scale * q @ k.transpose(-1, -2) + bias
    if seq_len_kv is None:
        return scores
    assert (seq_len_q == LENGTH).all()
    return scores.masked_fill(torch.arange(LENGTH) >= seq_len_kv, -torch.inf)


def attention(q, k, v, bias, scale, seq_len_q=None, seq_len_kv=None):
    scores = masked_scores(q, k, bias, seq_len_q, seq_len_kv, scale)
    logsumexp = scores.logsumexp(-1, keepdim=True)
    return (scores - logsumexp).exp() @ v, logsumexp


def gradients_written_out(q, k, v, bias, o, dO, stats, scale, seq_len_q=None, seq_len_kv=None):
    """Return dQ, dK, dV, dBias from the logsumexp, as flash attention has them."""
    weights = (masked_scores(q, k, bias, seq_len_q, seq_len_kv, scale) - stats).exp()
    d_scores = weights * (dO @ v.transpose(-1, -2) - (o * dO).sum(-1, keepdim=True))
    d_v = weights.transpose(-1, -2) @ dO
    d_bias = d_scores.sum(0, keepdim=True)
    return scale * d_scores @ k, scale * d_scores.transpose(-1, -2) @ q, d_v, d_bias


class StandInTensor:
    def __init__(self, **described):
        self.described, self.is_output = described, False

    def set_output(self, is_output):
        self.is_output = is_output
        return self

    def set_dim(self, dim):
        self.described["dim"] = dim
        return self

    def set_stride(self, stride):
        self.described["stride"] = stride
        return self

    def set_data_type(self, data_type):
        self.described["data_type"] = data_type
        return self


class StandInGraph:
    """Computes what it is asked for on the CPU, in fp64."""

    def __init__(self, **options):
        self.options, self.is_built = options, False

    def tensor(self, **described):
        return StandInTensor(**described)

    def sdpa(self, **arguments):
        assert arguments.pop("generate_stats")
        self.arguments, self.results = arguments, [StandInTensor(), StandInTensor()]
        return self.results

    def sdpa_backward(self, **arguments):
        self.arguments, self.results = arguments, [StandInTensor() for _ in range(3)]
        return self.results

    def build(self, modes):
        self.is_built = bool(modes)

    def get_workspace_size(self):
        return 64

    def execute(self, pack, workspace, *, handle):
        assert self.is_built and workspace.numel() == 64 and handle == self.options["handle"]
        for tensor, given in pack.items():
            assert list(given.shape) == tensor.described["dim"]
            assert list(given.stride()) == tensor.described["stride"]
            assert tensor.described.get("data_type", given.dtype) == given.dtype
        read = {
            name: pack[value].double()
            for name, value in self.arguments.items()
            if isinstance(value, StandInTensor) and name != "dBias"
        }
        assert ("seq_len_q" in read) == self.arguments.get("use_padding_mask", False)
        scale, asked = self.arguments["attn_scale"], list(self.results)
        if "dO" in read:
            found = gradients_written_out(**read, scale=scale)
            asked += [self.arguments["dBias"]] if "dBias" in self.arguments else []
        else:
            found = attention(**read, scale=scale)
        for tensor, result in zip(asked, found, strict=False):
            assert tensor.is_output
            pack[tensor].copy_(result)


@pytest.fixture
def stand_in(monkeypatch):
    module = types.ModuleType("cudnn")
    module.graphs, module.pygraph = [], lambda **options: remember(StandInGraph(**options))
    module.data_type = types.SimpleNamespace(BFLOAT16="bf16", HALF="fp16", FLOAT="fp32")
    module.heur_mode = types.SimpleNamespace(A="a", FALLBACK="fallback")
    module.create_handle, module.streams = object, []
    module.set_stream = lambda *, handle, stream: module.streams.append(stream)

    def remember(graph):
        module.graphs.append(graph)
        return graph

    monkeypatch.setitem(sys.modules, "cudnn", module)
    stream = types.SimpleNamespace(cuda_stream=7)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    caches = (cudnn_graphs.forward_plan, cudnn_graphs.backward_plan, cudnn_graphs._handle)
    for cache in caches:
        cache.cache_clear()
    yield module
    for cache in caches:
        cache.cache_clear()


def tensors(dtype, bias_dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    # Views of one projection, as the model makes them: not contiguous.
    projected = torch.randn(BATCH, LENGTH, 3, HEADS, HEAD_WIDTH, generator=generator).to(dtype)
    bias = torch.randn(HEADS, LENGTH, LENGTH, generator=generator).to(bias_dtype)
    upstream = torch.randn(BATCH, HEADS, LENGTH, HEAD_WIDTH, generator=generator).to(dtype)
    return projected.requires_grad_(), bias.requires_grad_(), upstream


def expected_results(projected, bias, upstream, lengths):
    leaves = [x.detach().double().requires_grad_() for x in (projected, bias)]
    rounded_bias = leaves[1] + (bias.to(projected.dtype).double() - leaves[1]).detach()
    masked = {}
    if lengths is not None:
        lengths_kv = lengths.view(-1, 1, 1, 1)
        masked = {"seq_len_q": torch.full_like(lengths_kv, LENGTH), "seq_len_kv": lengths_kv}
    output, _ = attention(*leaves[0].permute(2, 0, 3, 1, 4), rounded_bias, SCALE, **masked)
    return output, torch.autograd.grad(output, leaves, upstream.double())


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("lengths", [None, [LENGTH, 5, 1]])
@pytest.mark.parametrize("dtype", DTYPES)
def test_cudnn_is_given_what_attention_and_its_gradients_need(stand_in, dtype, lengths, compiled):
    lengths = None if lengths is None else torch.tensor(lengths, dtype=torch.int32)
    projected, bias, upstream = tensors(dtype)

    def attend(projected, bias):
        return cudnn_attention(*projected.permute(2, 0, 3, 1, 4), bias, lengths, SCALE)

    if compiled:
        attend = torch.compile(attend, fullgraph=True, backend="aot_eager")
    output = attend(projected, bias)
    gradients = torch.autograd.grad(output, [projected, bias], upstream)
    wanted_output, wanted = expected_results(projected, bias, upstream, lengths)
    assert [gradient.dtype for gradient in gradients] == [dtype, torch.float32]
    for found, tensor in zip([output, *gradients], [wanted_output, *wanted], strict=True):
        # The results are rounded to 8 or 11 bits.
        torch.testing.assert_close(found.double(), tensor, rtol=1e-2, atol=1e-2)
    assert stand_in.streams == [7, 7]


def test_a_graph_is_built_once_for_each_layout_and_need(stand_in):
    projected, bias, upstream = tensors(torch.bfloat16)
    for _ in range(2):
        q, k, v = projected.permute(2, 0, 3, 1, 4)
        cudnn_attention(q, k, v, bias, None, SCALE).backward(upstream)
    assert len(stand_in.graphs) == 2
    cudnn_attention(q.detach(), k, v, bias.detach(), None, SCALE).backward(upstream)
    assert len(stand_in.graphs) == 3
    assert ["dBias" in graph.arguments for graph in stand_in.graphs] == [False, True, False]
    cudnn_attention(q.contiguous(), k, v, bias, None, SCALE)
    assert len(stand_in.graphs) == 4


def test_the_projection_is_not_copied(stand_in):
    projected, bias, _ = tensors(torch.bfloat16)
    cudnn_attention(*projected.permute(2, 0, 3, 1, 4), bias, None, SCALE)
    seen = stand_in.graphs[0].arguments["q"].described["stride"]
    assert seen == [LENGTH * 3 * HEADS * HEAD_WIDTH, HEAD_WIDTH, 3 * HEADS * HEAD_WIDTH, 1]


def test_a_gradient_without_strides_and_a_bias_that_is_a_view_are_accepted(stand_in):
    projected, _, _ = tensors(torch.bfloat16)
    table = torch.randn(2 * LENGTH - 1, HEADS, generator=torch.Generator().manual_seed(1))
    bias = table.t().unfold(-1, LENGTH, 1).requires_grad_()  # as TUPE-R makes it
    output = cudnn_attention(*projected.permute(2, 0, 3, 1, 4), bias, None, SCALE)
    found = torch.autograd.grad(output.sum(), [projected, bias])
    _, wanted = expected_results(projected, bias, torch.ones_like(output), None)
    for gradient, expected in zip(found, wanted, strict=True):
        torch.testing.assert_close(gradient.double(), expected, rtol=1e-2, atol=2e-2)


def test_fp32_is_refused():
    projected, bias, _ = tensors(torch.float32)
    with pytest.raises(ValueError, match=r"queries are torch.float32.*torch.bfloat16"):
        cudnn_attention(*projected.permute(2, 0, 3, 1, 4), bias, None, SCALE)


@pytest.mark.parametrize("has_lengths", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_cudnns_own_check_accepts_the_graphs(dtype, has_lengths):
    """Of names, types and shapes; whether a GPU has a kernel for them is not asked here."""
    pytest.importorskip("cudnn", reason="nvidia-cudnn-frontend is not installed")
    strides = (512 * 3 * 12 * 64, 64, 3 * 12 * 64, 1)
    layout = Layout((8, 12, 512, 64), (strides,) * 3, dtype, has_lengths, SCALE)
    forward_graph(layout).graph.validate()
    for needs_bias_gradient in (False, True):
        backward_graph(layout, needs_bias_gradient).graph.validate()
