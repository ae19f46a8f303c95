"""The numbers of the last steps."""

import math

import torch

from pretrain.engine.engine import StepResult
from pretrain.stability.history import StepHistory


def result(losses, norm):
    return StepResult(torch.tensor(losses), norm, skipped=False, loss_scale=8.0)


def test_numbers_are_read_once_and_in_order():
    history = StepHistory("cpu")
    assert history.next_read() is None
    history.add(1, result([5.0, 4.0], torch.tensor(math.inf, dtype=torch.float64)))
    history.add(2, result([3.0, math.inf], None))
    assert history.next_read() == (1, [5.0, 4.0], False, False, 8.0)
    assert history.next_read() == (2, [3.0, math.inf], True, False, 8.0)
    assert history.next_read() is None


def test_steps_that_are_forgotten_are_not_read():
    history = StepHistory("cpu")
    history.add(1, result([5.0], 1.0))
    history.forget()
    assert not history.has_unread and history.next_read() is None
