"""Weights that ZeRO-3 divides: what is padding and what is not."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from pretrain.engine import computing_weights
from pretrain.engine.computing_weights import ComputingWeights


@pytest.mark.parametrize(
    ("rank", "part", "is_finite"),
    [
        (0, [1.0, 2.0], True),
        (0, [1.0, math.inf], False),
        (1, [3.0, math.nan], True),  # three elements on two ranks: the last place is padding
        (1, [math.nan, 0.0], False),
        (3, [math.nan, math.inf], True),  # of more ranks than needed, all of it is
    ],
)
def test_padding_may_hold_anything(monkeypatch, rank, part, is_finite):
    monkeypatch.setattr(computing_weights.distributed, "all_reduce", lambda bad: None)
    module = nn.Linear(3, 1, bias=False)
    module.weight.ds_tensor, module.weight.ds_numel = torch.tensor(part), 3
    ranks = SimpleNamespace(rank=rank)
    weights = ComputingWeights(module, None, ranks, are_divided=True)
    assert weights.are_finite() is is_finite
