"""What blocks change, against a double loop over rows and tokens."""

import math

import numpy
import pytest
import torch

from pretrain.analysis.layers import mean_ratio, measure_layers
from tests.pretrain.analysis.small_models import LENGTH, batches, small_model, states_and_loss


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_distance_cosine_and_means_equal_a_loop_over_tokens(norm):
    model, made = small_model("--model.norm", norm), batches(3, 3, filled=1)
    changes = measure_layers(model, made)
    with torch.no_grad():
        states, _ = states_and_loss(model, made)
    states = [one[:5].numpy() for one in states]  # the sixth row fills the batch
    for block, change in enumerate(changes, 1):
        distances, norms, cosines, total, to_last, away = [], [], [], 0.0, 0.0, []
        for row in range(5):
            for token in range(LENGTH):
                x, y = states[block - 1][row, token], states[block][row, token]
                last = states[-1][row, token]
                distances.append(math.sqrt(sum((y - x) ** 2)))
                norms.append(math.sqrt(sum(x**2)))
                cosines.append(sum(x * y) / math.sqrt(sum(x**2) * sum(y**2)))
                total = total + (y - x)
                to_last = to_last + (y - last)
                away.append(math.sqrt(sum((y - last) ** 2)))
        assert change.distance == pytest.approx(numpy.mean(distances))
        assert change.relative == pytest.approx(sum(distances) / sum(norms))
        assert change.cosine == pytest.approx(numpy.mean(cosines))
        ratio = math.sqrt(sum(total**2)) / sum(distances)
        assert change.mean.ratio == pytest.approx(ratio)
        if block == len(changes):
            assert change.to_last is None
        else:
            expected = math.sqrt(sum(to_last**2)) / sum(away)
            assert change.to_last.ratio == pytest.approx(expected)


def test_vectors_of_mean_zero_stay_below_the_mark_nineteen_times_in_twenty():
    generator = numpy.random.default_rng(0)
    below = 0
    for _ in range(60):
        vectors = generator.normal(size=(40, 8))
        found = mean_ratio(vectors, numpy.linalg.norm(vectors, axis=1))
        below += found.ratio <= found.zero_mean
    assert 53 <= below <= 60  # 57 expected, with a standard deviation of 1.7
