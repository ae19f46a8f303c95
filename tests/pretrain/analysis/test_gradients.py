"""Gradients against a plain forward pass with autograd."""

import pytest
import torch

from pretrain.analysis.gradients import measure_gradients
from tests.pretrain.analysis.small_models import batches, small_model, states_and_loss


@pytest.mark.parametrize(("positions", "norm"), [("bert-a", "post"), ("tupe-r", "pre")])
def test_gradients_are_those_of_one_plain_pass_over_all_rows(norm, positions):
    model = small_model("--model.norm", norm, "--model.positions", positions)
    made = batches(3, 2, filled=1)
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
