"""A step that is run again, against plain autograd."""

import contextlib

import pytest
import torch

from pretrain.stability.replay import layer_of, norms_per_layer, replay_step
from tests.pretrain.engine import training_case as case

SETTINGS = case.case_settings()
SCALES = ([1.25, 0.0, 2.0], [1.25, 1.5, 2.0])


def micro_batches():
    return [(case.micro_batch(7, place), scales) for place, scales in enumerate(SCALES)]


def inspect(model, loss_scale=1.0):
    return replay_step(
        model, micro_batches(), loss_scale=loss_scale, forward_context=contextlib.nullcontext
    )


def plain_gradients(model):
    loss = sum(model(*batch, scales) for batch, scales in micro_batches()) / 2
    names, parameters = zip(*model.named_parameters(), strict=True)
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    return dict(zip(names, found, strict=True))


@pytest.mark.parametrize("loss_scale", [1.0, 2.0**12])
def test_norms_and_losses_are_those_of_plain_autograd(loss_scale):
    expected = {}
    for name, gradient in plain_gradients(case.build_model(SETTINGS)).items():
        layer = "head" if name.startswith("head") else name.rsplit(".", 1)[0]
        if "blocks" in name:
            layer = f"encoder.blocks.{name.split('.')[2]}"
        elif "positions" in name:
            layer = "encoder.positions"
        square = 0.0 if gradient is None else float(gradient.double().norm()) ** 2
        expected[layer] = expected.get(layer, 0.0) + square
    found, gradients = inspect(case.build_model(SETTINGS), loss_scale)
    norms = norms_per_layer(gradients)
    # sums in fp32, in another order
    assert norms == pytest.approx({name: value**0.5 for name, value in expected.items()}, rel=1e-5)
    model = case.build_model(SETTINGS)
    assert found.losses == [model(*batch, scales).item() for batch, scales in micro_batches()]
    assert found.first_not_finite() is None and found.not_finite_gradients == []


def test_the_largest_logit_and_activation_are_those_of_a_plain_pass():
    model = case.build_model(SETTINGS)
    found, _ = inspect(case.build_model(SETTINGS))
    logits = [
        model.logits(batch.ids_BS, batch.positions_M, scales) for batch, scales in micro_batches()
    ]
    largest = max(part.abs().max().item() for part in logits)
    assert found.largest_logit == pytest.approx(largest, rel=1e-5)
    outputs = []
    model.encoder.blocks[2].register_forward_hook(
        lambda _, __, output: outputs.append(output.abs().max().item())
    )
    for batch, scales in micro_batches():
        model(*batch, scales)
    assert found.largest_activations["encoder.blocks.2"] == max(outputs)


def test_a_weight_that_is_not_finite_is_named_and_where_it_shows_first():
    model = case.build_model(SETTINGS)
    with torch.no_grad():
        model.encoder.blocks[1].attention.query_key_value.weight[3, 2] = float("nan")
    found, _ = inspect(model)
    assert found.first_not_finite() == "weight encoder.blocks.1.attention.query_key_value.weight"
    # Block 1 rests in the first micro-batch.
    assert found.first_not_finite_forward == (
        "output of encoder.blocks.1.attention.query_key_value (micro-batch 2)"
    )
    assert found.first_not_finite_backward.endswith("(micro-batch 2)")


def test_what_becomes_infinite_between_modules_is_named_after_the_next_one():
    """Weights that are finite, and scores of attention that are not."""
    model = case.build_model(SETTINGS)
    with torch.no_grad():
        model.encoder.blocks[2].attention.query_key_value.weight *= 1e22
    found, _ = inspect(model)
    assert found.not_finite_weights == []
    assert found.first_not_finite() == (
        "input of encoder.blocks.2.attention.output (micro-batch 1)"
    )


def test_a_gradient_that_is_too_large_for_fp16_is_the_first_of_the_backward_pass():
    model = case.build_model(SETTINGS)
    handle = model.encoder.final_norm.register_forward_hook(
        lambda _, __, output: _Overflow.apply(output)
    )
    found, _ = inspect(model)
    handle.remove()
    assert found.first_not_finite_forward is None
    assert found.first_not_finite() == "gradient of encoder.final_norm.weight (micro-batch 1)"
    assert not any(name.startswith("head") for name in found.not_finite_gradients)


class _Overflow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * float("inf")


def test_layers_are_blocks_and_the_parts_around_them():
    names = {layer_of(name) for name, _ in case.build_model(SETTINGS).named_parameters()}
    assert names == {
        *(f"encoder.blocks.{index}" for index in range(3)),
        *("encoder.token_embeddings", "encoder.embedding_norm", "encoder.final_norm"),
        *("encoder.positions", "head"),
    }
