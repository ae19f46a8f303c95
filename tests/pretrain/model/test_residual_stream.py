"""The residual stream in bf16, against a plain loop over the blocks; and where it is refused."""

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.engine.execution import Machine, plan_execution, this_machine
from pretrain.model.blocks import Block
from pretrain.model.encoder import Encoder
from pretrain.model.execution_plan import ExecutionPlan
from pretrain.model.objectives.masked_language_model import MaskedLanguageModel

IN_BF16 = ExecutionPlan(bf16_residual_stream=True)
ON = ("--engine.bf16_residual_stream", "true")
SCALES = [None, [1.5, 0.0, 12 / 11]]


def model_settings(*words):
    return load_settings("tiny_cpu", ("--model.num_layers", "3", *words)).model


def encoder_of(plan, *words):
    torch.manual_seed(0)
    return Encoder(model_settings(*words), plan)


def normed(norm, x):
    return F.layer_norm(x.float(), norm.normalized_shape, norm.weight, norm.bias, norm.eps)


def plain_loop(encoder, ids_BS, scales):
    """Sum in fp32 and round each sum, and each output of a PostLN norm, to bf16 once."""
    embedded_BSD = encoder.positions.add_to_embeddings(encoder.token_embeddings(ids_BS))
    x_BSD = normed(encoder.embedding_norm, embedded_BSD).bfloat16()
    terms = encoder.positions.terms(ids_BS.shape[1], device="cpu")
    for block, scale in zip(encoder.blocks, scales or [1.0] * 3, strict=True):
        if scale == 0:
            continue
        for branch, norm in (
            (lambda x, block=block: block.attention(x, terms), block.attention_norm),
            (block.feedforward, block.feedforward_norm),
        ):
            found_BSD = branch(normed(norm, x_BSD).bfloat16() if block.norm_first else x_BSD)
            scaled_BSD = (found_BSD.float() * scale).bfloat16()
            x_BSD = (x_BSD.float() + scaled_BSD.float()).bfloat16()
            if not block.norm_first:
                x_BSD = normed(norm, x_BSD).bfloat16()
    return x_BSD if encoder.final_norm is None else normed(encoder.final_norm, x_BSD).bfloat16()


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("recompute", [False, True])
def test_every_sum_is_rounded_once(norm, scales, recompute):
    plan = ExecutionPlan(bf16_residual_stream=True, recomputes_blocks=recompute)
    encoder = encoder_of(plan, "--model.norm", norm)
    ids_BS = torch.randint(5, 1000, (3, 32))
    upstream_BSD = torch.randn(3, 32, encoder.token_embeddings.embedding_dim)
    gradients = []
    for run in (encoder, functools.partial(plain_loop, encoder)):
        with torch.autocast("cpu", torch.bfloat16):
            output_BSD = run(ids_BS, scales)
        total = (output_BSD.float() * upstream_BSD).sum()
        gradients.append(
            torch.autograd.grad(
                total, list(encoder.parameters()), allow_unused=True, materialize_grads=True
            )
        )
        if run is encoder:
            found_BSD = output_BSD
    assert torch.equal(found_BSD, output_BSD)
    for found, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def tensors_between_blocks(encoder):
    """Return a list that fills with input and output of each block that runs."""
    seen = []
    for block in encoder.blocks:
        block.register_forward_hook(lambda _, inputs, output: seen.extend([inputs[0], output]))
    return seen


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_blocks_take_and_return_bf16_and_the_default_is_fp32(norm):
    for plan, dtype in ((IN_BF16, torch.bfloat16), (ExecutionPlan(), torch.float32)):
        torch.manual_seed(0)
        model = MaskedLanguageModel(model_settings("--model.norm", norm), plan)
        streamed = tensors_between_blocks(model.encoder)
        ids, places = torch.randint(5, 1000, (2, 32)), torch.tensor([3, 40])
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(ids, places, ids.view(-1)[places], [1.25, 1.5, 2.0])
        loss.backward()
        assert [tensor.dtype for tensor in streamed] == [dtype] * 6
        assert loss.dtype == torch.float32
        assert all(p.grad.dtype == torch.float32 for p in model.parameters())


def bytes_kept_for_the_backward_pass(plan):
    encoder, kept = encoder_of(plan), {}
    weights = {parameter.data_ptr() for parameter in encoder.parameters()}

    def keep(tensor):
        if tensor.data_ptr() not in weights:
            kept[tensor.data_ptr()] = tensor  # held, so that no address is used again
        return tensor

    with (
        torch.autocast("cpu", torch.bfloat16),
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
    ):
        encoder(torch.randint(5, 1000, (3, 32)))
    return sum(tensor.nbytes for tensor in kept.values())


def test_recomputed_blocks_keep_inputs_of_half_the_size():
    kept = {
        in_bf16: bytes_kept_for_the_backward_pass(
            ExecutionPlan(recomputes_blocks=True, bf16_residual_stream=in_bf16)
        )
        for in_bf16 in (False, True)
    }
    blocks, rows, length, width = 3, 3, 32, 32
    assert kept[False] - kept[True] == 2 * blocks * rows * length * width


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_compiled_blocks_do_the_same_with_one_graph_for_all_scales(monkeypatch, norm):
    graphs = []

    def backend(graph, inputs):
        graphs.append(len(inputs))
        return graph.forward

    compiling = functools.partialmethod(nn.Module.compile, backend=backend)
    monkeypatch.setattr(Block, "compile", compiling)
    torch._dynamo.reset()
    ids_BS, outputs = torch.randint(5, 1000, (3, 32)), []
    plans = [IN_BF16, ExecutionPlan(bf16_residual_stream=True, compiles_blocks=True)]
    for encoder in [encoder_of(plan, "--model.norm", norm) for plan in plans]:
        with torch.autocast("cpu", torch.bfloat16):
            outputs.append([encoder(ids_BS, [scale, 0.0, scale]) for scale in (1.1, 1.3)])
    assert len(graphs) == 1
    for plain, compiled in zip(*outputs, strict=True):
        assert plain.dtype == compiled.dtype
        # Both multiply in fp32 and round to bf16.
        assert torch.equal(compiled, plain)


def test_no_norm_sums_the_gradients_of_its_weights_in_bf16():
    """That of the head reads bf16 under autocast whatever the residual stream is."""
    torch.manual_seed(0)
    model = MaskedLanguageModel(model_settings())
    norms = {name: module for name, module in model.named_modules() if name.endswith("norm")}
    norms.pop("encoder.positions.projected.norm")  # of fp32 weights
    assert len(norms) == 3 * 2 + 3
    for name, norm in norms.items():
        input_MD, upstream_MD = torch.randn(2, 2048, 32).bfloat16()
        with torch.autocast("cpu", torch.bfloat16):
            norm(input_MD).backward(upstream_MD)
        expected_D = upstream_MD.double().sum(0)
        # fp32 sums of 2048 numbers
        torch.testing.assert_close(
            norm.bias.grad.double(), expected_D, rtol=1e-4, atol=1e-4, msg=name
        )


def settings_of(*words):
    return load_settings("tiny_cpu", words)


@pytest.mark.parametrize(
    ("machine", "words", "obstacle"),
    [
        (Machine("cpu", torch.float32, 0), (), "this run computes in float32"),
        (Machine("cuda", torch.bfloat16, 1, (9, 0)), (), "its weights have 16 bits"),
        (Machine("cuda", torch.float16, 1, (7, 0)), (), "its weights have 16 bits"),
        (
            Machine("cuda", torch.bfloat16, 1, (9, 0), autocasts=True),
            ("--engine.compile_blocks", "off"),
            "saves nothing on CUDA without compiled blocks",
        ),
        (
            Machine("cuda", torch.bfloat16, 3, (9, 0), autocasts=True),
            (),
            "saves nothing on CUDA without compiled blocks",
        ),
    ],
)
def test_it_is_refused_where_it_has_no_effect(machine, words, obstacle):
    with pytest.raises(ConfigError, match=f"engine.bf16_residual_stream=True: .*{obstacle}"):
        plan_execution(settings_of(*ON, *words), machine)
    assert not plan_execution(settings_of(*words), machine).bf16_residual_stream


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_it_is_used_where_it_is_set_and_reported(device):
    machine = Machine(device, torch.bfloat16, 1, (9, 0), autocasts=True)
    found = plan_execution(settings_of(*ON), machine)
    assert found.bf16_residual_stream and "; residual stream in bf16" in found.describe()
    found = plan_execution(settings_of(), machine)
    assert not found.bf16_residual_stream and "residual" not in found.describe()


def test_the_deepspeed_json_decides_whether_it_can_be_used():
    def planned(config):
        return plan_execution(settings_of(*ON), this_machine(config, "cpu"))

    autocast = {"torch_autocast": {"enabled": True, "dtype": "bfloat16"}}
    assert planned(autocast).bf16_residual_stream
    for config in ({}, {"bf16": {"enabled": True}}):
        with pytest.raises(ConfigError, match="engine.bf16_residual_stream=True"):
            planned(config)
