"""Steps on the device "meta": what is made on the host, or read from the device, is an error."""

import pytest
import torch

from pretrain.engine.execution import RELATIVE_KEYS
from pretrain.model.encoder import Encoder
from pretrain.model.execution_plan import ExecutionPlan
from pretrain.model.positions import POSITION_ENCODINGS
from tests.pretrain.model.random_encodings import model_settings

# Without a GPU, Triton is interpreted, and asks for no device.
ATTENTIONS = ["eager", "sdpa", *["triton"] * (not torch.cuda.is_available())]


def on_meta(*shape):
    return torch.empty(shape, dtype=torch.int64, device="meta")


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("positions", POSITION_ENCODINGS)
def test_nothing_of_a_step_is_made_on_another_device_or_waits_for_this(
    monkeypatch, positions, attention
):
    """Forward and backward pass, with a block skipped, another scaled, and dropout."""
    if POSITION_ENCODINGS[positions].has_relative_keys and attention not in RELATIVE_KEYS:
        pytest.skip("refused by plan_execution")
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: False)  # which knows no "meta"
    shape = {"num_layers": 3, "dropout": 0.1, "attention_dropout": 0.1}
    settings = model_settings(positions=positions, **shape)
    with torch.device("meta"):
        encoder = Encoder(settings, ExecutionPlan(attention)).to(torch.bfloat16)
    states_MD = encoder(on_meta(4, 32), [1.25, 0.0, 2.0], positions_M=on_meta(10))
    assert (states_MD.dtype, states_MD.device.type) == (torch.bfloat16, "meta")
    states_MD.sum().backward()
    assert sum(parameter.grad is not None for parameter in encoder.parameters()) > 2 * 8


def test_what_is_made_elsewhere_or_read_is_seen():
    """Else the test above could not fail."""
    x = torch.ones(3, device="meta")
    for wrong in (lambda: x + torch.ones(3), lambda: float(x[0]), lambda: x.nonzero()):
        with pytest.raises((RuntimeError, NotImplementedError)):
            wrong()
