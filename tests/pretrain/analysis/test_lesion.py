"""Losses without blocks, against models that lack them."""

from types import SimpleNamespace

import numpy
import pytest
import torch
from torch import nn

from pretrain.analysis.measures.lesion import DRAWS, KEEP_RATIOS, held_out_losses, measure_lesions
from pretrain.config.settings import LayerDropSettings
from pretrain.schedules.layer_drop import branch_scales
from tests.pretrain.analysis.small_models import batches, small_model, states_and_loss

BAR = SimpleNamespace(update=lambda n=1: None)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_loss_without_a_block_is_that_of_a_model_that_lacks_it(norm):
    model, made = small_model("--model.norm", norm), batches(3, 3, filled=1)
    found = measure_lesions(held_out_losses(model, made, BAR), 3, rescale=True)
    with torch.no_grad():
        assert found.whole == pytest.approx(float(states_and_loss(model, made)[1]))
        all_blocks = list(model.encoder.blocks)
        for left_out, loss in enumerate(found.without):
            model.encoder.blocks = nn.ModuleList(
                block for number, block in enumerate(all_blocks) if number != left_out
            )
            assert loss == pytest.approx(float(states_and_loss(model, made)[1]))
            assert abs(loss - found.whole) > 1e-3


def test_random_depth_is_the_mean_over_the_draws_of_layer_drop():
    weights = numpy.array([1.0, 10.0, 100.0])
    seen = []

    def loss(scales):
        seen.append(scales)
        return 0.0 if scales is None else float(weights @ numpy.array(scales))

    drop = LayerDropSettings(schedule="constant", rescale=False)
    found = measure_lesions(loss, 3, rescale=False)
    for depth, ratio in zip(found.random, KEEP_RATIOS, strict=True):
        drawn = [
            branch_scales(0, draw, drop, theta=ratio, num_layers=3, seed=0) for draw in range(DRAWS)
        ]
        losses = [float(weights @ numpy.array(scales)) for scales in drawn]
        assert depth.loss == pytest.approx(sum(losses) / DRAWS)
        assert min(losses) <= depth.low <= depth.loss <= depth.high <= max(losses)
        assert depth.blocks == sum(scale != 0 for scales in drawn for scale in scales) / DRAWS
    assert found.random[-1].low == found.random[-1].high == 111.0  # theta 1 drops nothing
    assert seen[1:4] == [[0.0, 1.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.0]]


def test_kept_blocks_are_scaled_as_the_run_scaled_them():
    def largest(scales):
        return 0.0 if scales is None else max(scales)

    scaled = measure_lesions(largest, 3, rescale=True).random[0]
    plain = measure_lesions(largest, 3, rescale=False).random[0]
    assert scaled.loss > plain.loss
    assert plain.high <= 1.0
