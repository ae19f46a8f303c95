"""Losses against their formulas; outputs come back in the units of the labels."""

import math

import numpy
import pytest
import torch
from sklearn.metrics import log_loss
from sklearn.utils import compute_class_weight

from finetune.tasks.glue import GLUE
from finetune.tasks.task import Task
from finetune.training.targets import Classes, Values, is_constant, target_of

PRICE = Task("price", (), ("pearson",), ("text",))


def test_classes_are_trained_by_cross_entropy():
    logits = torch.tensor([[1.0, 2.0, -1.0], [0.5, 0.0, 0.0]])
    expected = [
        -math.log(math.exp(row[label]) / sum(map(math.exp, row)))
        for row, label in zip(logits.tolist(), [1, 0], strict=True)
    ]
    assert float(Classes(3).loss(logits, [1, 0])) == pytest.approx(sum(expected) / 2, abs=1e-6)


def test_balanced_weights_and_their_loss_are_those_of_scikit_learn():
    labels, logits = [0] * 7 + [1] * 2 + [2], torch.randn(10, 3)
    task = Task("three", ("a", "b", "c"), ("accuracy",), ("text",))
    target = target_of(task, labels, balanced=True)
    expected = compute_class_weight("balanced", classes=numpy.arange(3), y=labels)
    assert target.weights == pytest.approx(expected.tolist())
    weights, shares = expected[labels], logits.double().softmax(-1)
    assert float(target.loss(logits, labels)) == pytest.approx(
        log_loss(labels, shares, sample_weight=weights), abs=1e-6
    )


def test_several_labels_are_trained_by_the_cross_entropy_of_each():
    task = Task("tags", ("a", "b"), ("micro_f1",), ("text",), form="multi-label")
    logits, labels = torch.tensor([[1.0, -2.0], [0.5, 3.0]]), [(0, 1), ()]
    plain, balanced = (target_of(task, labels, balanced=each) for each in (False, True))
    losses = [math.log(1 + math.exp(x)) for x in (-1.0, 2.0, 0.5, 3.0)]
    # One of two rows has each label: (2 - 1) / 1 = 1
    for target in (plain, balanced):
        assert float(target.loss(logits, labels)) == pytest.approx(sum(losses) / 4, abs=1e-6)
    weights = target_of(task, [(0,), (0,), (1, 0), ()], balanced=True).weights
    assert weights == pytest.approx((1 / 3, 3.0))
    assert target_of(task, [(0,), (1, 0)], balanced=True).weights == (0.5, 1.0)  # not 0
    assert plain.predictions(logits.numpy()) == [(0,), (0, 1)]


def test_values_are_trained_by_the_squared_error_of_scaled_labels():
    target = Values(centre=10.0, spread=4.0)
    loss = float(target.loss(torch.tensor([[0.5], [-1.0]]), [10.0, 14.0]))
    assert loss == pytest.approx(((0.5 - 0) ** 2 + (-1 - 1) ** 2) / 2, abs=1e-6)
    outputs = numpy.array([[0.5], [-1.0]], dtype=numpy.float32)
    assert target.predictions(outputs) == [12.0, 6.0]


def test_sts_b_is_divided_by_five_and_other_values_are_standardised():
    assert target_of(GLUE.tasks["STS-B"], [0.0, 5.0]) == Values(0.0, 5.0)
    labels = [3.0, 5.0, 10.0]
    mean = sum(labels) / 3
    spread = math.sqrt(sum((label - mean) ** 2 for label in labels) / 3)
    found = target_of(PRICE, labels)
    assert (found.centre, found.spread) == (pytest.approx(mean), pytest.approx(spread))
    assert target_of(PRICE, [2.0, 2.0]) == Values(2.0, 1.0)


def test_a_model_that_says_the_same_of_everything_is_noticed():
    assert is_constant(Classes(2), [1, 1]) and not is_constant(Classes(2), [1, 0])
    assert is_constant(Values(0, 5), [2, 2.004]) and not is_constant(Values(0, 5), [2, 2.006])


def test_numbers_beside_a_large_mean_keep_their_differences():
    """As of seconds since 1970: fp32 has three numbers within a minute."""
    logits = numpy.linspace(-1, 1, 100, dtype=numpy.float32)[:, None]
    found = Values(centre=1.7e9, spread=30.0).predictions(logits)
    assert found == pytest.approx([1.7e9 + 30 * float(x) for (x,) in logits], abs=1e-5)
