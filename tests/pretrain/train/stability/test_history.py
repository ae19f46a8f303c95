"""The numbers of the last steps."""

import math
from types import SimpleNamespace

import torch

from pretrain.distributed.ranks import Ranks
from pretrain.engine.engine import StepResult
from pretrain.train.stability.history import StepHistory


def test_numbers_are_read_once_and_in_order():
    history = StepHistory(SimpleNamespace(ranks=Ranks(0, 1, "cpu"), scales_loss=False))
    infinite = torch.tensor(math.inf, dtype=torch.float64)
    for step, losses, norm in ((1, [5.0, 4.0], infinite), (2, [3.0, math.inf], None)):
        history.add(step, StepResult(torch.tensor(losses), norm, skipped=False, loss_scale=8.0))
    found = [list(history.next_read().values()) for _ in range(3)]
    assert found == [[1, 4.5, 0, 1, 0, 8], [2, 0, 1, 0, 0, 8], [0] * 6]
    assert not history.has_unread
