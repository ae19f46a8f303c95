"""Gradients against a plain forward pass with autograd, and against finite differences."""

import pytest
import torch

from pretrain.analysis.measures.gradients import measure_gradients
from tests.pretrain.analysis.small_models import batches, small_model, states_and_loss


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("positions", ["bert-a", "tupe-r"])
def test_gradients_are_those_of_one_plain_pass_over_all_rows(norm, positions):
    model, made = small_model("--model.norm", norm, "--model.positions", positions), batches(3, 2)
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


def test_the_norm_of_a_gradient_is_the_slope_of_the_loss_along_it():
    model, made = small_model("--model.norm", "post"), batches(2, 2, filled=1)
    found = measure_gradients(model, made)
    block = model.encoder.blocks[1]
    direction = [one.grad / found.weights[1] for one in block.parameters()]
    losses = []
    for step in (1e-5, -2e-5):  # to one side, and from there to the other
        with torch.no_grad():
            for parameter, along in zip(block.parameters(), direction, strict=True):
                parameter += step * along
            losses.append(float(states_and_loss(model, made)[1]))
    assert (losses[0] - losses[1]) / 2e-5 == pytest.approx(found.weights[1], rel=1e-5)


def test_the_slope_of_the_loss_along_a_state_is_the_norm_of_its_gradient():
    model, made = small_model("--model.norm", "pre"), batches(3)
    found = measure_gradients(model, made)
    with torch.no_grad():
        states, _ = states_and_loss(model, made)
    state = states[1].clone().requires_grad_()
    _, loss = states_and_loss(model, made, replaced=(1, state))
    (gradient,) = torch.autograd.grad(loss, [state])
    along = gradient / gradient.norm() * 1e-5
    with torch.no_grad():
        ends = [
            float(states_and_loss(model, made, replaced=(1, states[1] + sign * along))[1])
            for sign in (1, -1)
        ]
    assert (ends[0] - ends[1]) / 2e-5 == pytest.approx(found.states[1], rel=1e-5)


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
