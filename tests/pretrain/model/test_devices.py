"""Steps on the device "meta": what is made on the host, or read from the device, is an error."""

import contextlib
from itertools import product

import pytest
import torch

from pretrain.config.settings import DEFAULT_OBJECTIVE, REPLACED_TOKEN_DETECTION, ElectraSettings
from pretrain.engine.execution import RELATIVE_KEYS
from pretrain.model.execution_plan import ExecutionPlan
from pretrain.model.objectives.catalog import build_objective
from pretrain.model.positions import POSITION_ENCODINGS
from tests.pretrain.model.random_encodings import model_settings

# Without a GPU, Triton is interpreted, and asks for no device.
ATTENTIONS = ["eager", "sdpa", *["triton"] * (not torch.cuda.is_available())]

# What replaced-token detection adds depends neither on the positions nor on the attention.
CASES = [
    *product([DEFAULT_OBJECTIVE], POSITION_ENCODINGS, ATTENTIONS, [torch.float16]),
    *product([REPLACED_TOKEN_DETECTION], ["tupe-r"], ["eager"], [torch.float16, torch.float32]),
]


def on_meta(*shape):
    return torch.empty(shape, dtype=torch.int64, device="meta")


@pytest.mark.parametrize(("objective", "positions", "attention", "dtype"), CASES)
def test_nothing_of_a_step_is_made_on_another_device_or_waits_for_this(
    monkeypatch, objective, positions, attention, dtype
):
    """Forward and backward pass, with a block skipped, another scaled, and dropout."""
    if POSITION_ENCODINGS[positions].has_relative_keys and attention not in RELATIVE_KEYS:
        pytest.skip("refused by plan_execution")
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: False)  # which knows no "meta"
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())  # nor this
    shape = {"num_layers": 3, "dropout": 0.1, "attention_dropout": 0.1}
    settings, electra = model_settings(positions=positions, **shape), ElectraSettings()
    with torch.device("meta"):
        model = build_objective(settings, objective, electra, ExecutionPlan(attention)).to(dtype)
    loss = model(on_meta(4, 32), on_meta(10), on_meta(10), [1.25, 0.0, 2.0])
    assert loss.device.type == "meta"
    loss.backward()
    for name, weight in model.named_parameters():
        assert (weight.grad is None) == (".1." in name), name  # of the skipped block


def test_what_is_made_elsewhere_or_read_is_seen():
    """Else the test above could not fail."""
    x = torch.ones(3, device="meta")
    for wrong in (lambda: x + torch.ones(3), lambda: float(x[0]), lambda: x.nonzero()):
        with pytest.raises((RuntimeError, NotImplementedError)):
            wrong()
