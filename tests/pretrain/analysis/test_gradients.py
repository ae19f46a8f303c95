"""Gradients against a plain forward pass with autograd."""

import pytest
import torch

from pretrain.analysis.gradients import measure_gradients
from tests.pretrain.analysis.small_models import batches, small_model, states_and_loss


@pytest.mark.parametrize(("positions", "norm"), [("bert-a", "post"), ("tupe-r", "pre")])
def test_gradients_are_those_of_one_plain_pass_over_all_rows(norm, positions):
    model, made = (
        small_model("--model.norm", norm, "--model.positions", positions),
        batches(3, 2, filled=1),
    )
    found = measure_gradients(model, made)
    model.zero_grad()
    states, loss = states_and_loss(model, made)
    gradients = torch.autograd.grad(loss, states, retain_graph=True)
    last = gradients[-1].flatten()
    for layer, gradient in enumerate(gradients):
        flat = gradient.flatten()
        cosine = float(flat @ last / flat.norm() / last.norm())
        assert found.states[layer] == pytest.approx(float(flat.norm()), rel=1e-5)
        assert found.cosines[layer] == pytest.approx(cosine, rel=1e-5)
        share = float((flat - last).norm() / last.norm())
        assert found.residual[layer] == pytest.approx(share, rel=1e-5, abs=1e-5)
    for number, block in enumerate(model.encoder.blocks):
        of_weights = torch.autograd.grad(loss, list(block.parameters()), retain_graph=True)
        norm_of_all = torch.cat([one.flatten() for one in of_weights]).norm()
        assert found.weights[number] == pytest.approx(float(norm_of_all), rel=1e-5)


def test_blocks_that_add_nothing_leave_the_gradient_as_it_is():
    model = small_model("--model.norm", "pre")
    with torch.no_grad():
        for block in model.encoder.blocks:
            for output in (block.attention.output, block.feedforward.output):
                output.weight.zero_()
                output.bias.zero_()
    found = measure_gradients(model, batches(2))
    assert found.states == pytest.approx([found.states[-1]] * 4)
    assert found.cosines == pytest.approx([1.0] * 4)
    assert found.residual == pytest.approx([0.0] * 4, abs=1e-9)
