"""Positional correlations against the equations, and the rule that names patterns against loops."""

import math

import numpy
import pytest

from pretrain.analysis.positions import correlation_parts, head_pattern, rank
from pretrain.model.positions import POSITION_ENCODINGS
from tests.pretrain.model.random_encodings import model_settings, random_encoding

LENGTH = 24
HEADS, WIDTH = 2, 8


def encoding_named(name):
    """Return an encoding in fp64 with random weights."""
    settings = model_settings(positions=name, width=HEADS * WIDTH)
    return random_encoding(settings, std=1).double()


def test_the_parts_of_tupe_equal_its_equations():
    encoding = encoding_named("tupe-r")
    parts = correlation_parts(encoding, LENGTH)
    table = encoding.projected.position_embeddings.weight.detach().numpy()
    centred = table - table.mean(1, keepdims=True)
    normed = centred / numpy.sqrt((centred**2).mean(1, keepdims=True) + 1e-12)
    normed = normed * encoding.projected.norm.weight.detach().numpy()
    normed = normed + encoding.projected.norm.bias.detach().numpy()
    query = normed @ encoding.projected.query.weight.detach().numpy().T
    key = normed @ encoding.projected.key.weight.detach().numpy().T
    for head in range(HEADS):
        rows = slice(head * WIDTH, (head + 1) * WIDTH)
        product = query[:, rows] @ key[:, rows].T / math.sqrt(2 * WIDTH)
        assert parts["P-term"][head] == pytest.approx(product[:LENGTH, :LENGTH], rel=1e-6)
        expected = product[:LENGTH, :LENGTH] + parts["B"][head]
        expected[:, 0] = product[-1, -1]  # theta_2
        expected[0, :] = product[-2, -2]  # theta_1
        assert parts["v"][head] == pytest.approx(expected, rel=1e-6)


def test_b_is_a_toeplitz_matrix_of_full_rank_and_the_p_term_has_the_rank_of_a_head():
    parts = correlation_parts(encoding_named("tupe-r"), LENGTH)
    for head in range(HEADS):
        diagonals = [numpy.diagonal(parts["B"][head], shift) for shift in range(1 - LENGTH, LENGTH)]
        assert all(numpy.ptp(diagonal) == 0 for diagonal in diagonals)
        for part, expected in (("P-term", WIDTH), ("B", LENGTH)):
            values = numpy.linalg.svd(parts[part][head], compute_uv=False)
            assert rank(values) == expected == numpy.linalg.matrix_rank(parts[part][head])


@pytest.mark.parametrize(
    "name", [name for name, kind in POSITION_ENCODINGS.items() if kind.has_attention_bias]
)
def test_every_encoding_with_a_bias_can_be_taken_apart(name):
    parts = correlation_parts(encoding_named(name), LENGTH)
    assert all(matrices.shape == (HEADS, LENGTH, LENGTH) for matrices in parts.values())
    assert all(numpy.isfinite(matrices).all() for matrices in parts.values())


def shares_by_loops(correlations):
    """Return the mean weight before, on and after the query, and near it, by loops."""
    n = len(correlations) - 1
    radius = max(1, n // 16)
    before = same = after = near = equal = 0.0
    for i in range(1, n + 1):
        powers = [math.exp(correlations[i][j]) for j in range(1, n + 1)]
        for j in range(1, n + 1):
            weight = powers[j - 1] / sum(powers)
            before += weight * (j < i) / n
            same += weight * (j == i) / n
            after += weight * (j > i) / n
            near += weight * (abs(j - i) <= radius) / n
            equal += (abs(j - i) <= radius) / n**2
    return before, same, after, near, near / equal


def test_the_weights_of_a_pattern_equal_loops_over_queries_and_keys():
    correlations = numpy.random.default_rng(0).normal(size=(40, 40)) * 2
    found = head_pattern(correlations)
    weights = (found.before, found.same, found.after, found.near, found.near_times_uniform)
    assert weights == pytest.approx(shares_by_loops(correlations))


def head(of_distance, *, length=65):
    """Return v_ij as a function of j - i, with a first row and column that must not count."""
    places = numpy.arange(length)
    v = numpy.vectorize(of_distance, otypes=[float])(places[None, :] - places[:, None])
    v[:, 0] = v[0, :] = 50.0
    return v


@pytest.mark.parametrize(
    ("of_distance", "name"),
    [
        (lambda distance: 0.0, "broad"),
        (lambda distance: -abs(distance) / 2, "local"),
        (lambda distance: 3.0 if distance == 0 else 0.0, "local"),
        (lambda distance: 4.0 if distance == -1 else -1.0, "previous"),
        (lambda distance: 3.0 if distance < 0 else 0.0, "previous"),
        (lambda distance: 4.0 if distance == 1 else -1.0, "next"),
        (lambda distance: -4.0 if abs(distance) <= 6 else 0.0, "global, not local"),
        # Some weight on each side and a third more than elsewhere near the query: no rule applies.
        (lambda distance: 0.3 if abs(distance) <= 6 else 0.0, "broad"),
    ],
)
def test_heads_made_for_a_pattern_get_its_name(of_distance, name):
    assert head_pattern(head(of_distance)).pattern == name
