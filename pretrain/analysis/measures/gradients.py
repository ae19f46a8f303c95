"""Gradients of the weights and of the states of each block, over the checkpoints of runs.

The loss is that of held-out rows. With x_0 the input of the first block and x_l the output of
block l, PLD Eq. 5 is, for PreLN,

    dE/dx_l = dE/dx_L + dE/dx_L d/dx_l (sum of the branches of blocks l + 1 .. L).

The first term reaches every block as it is; the second is what the blocks add. For PostLN, where
norms stand on the path, the same difference is measured. A state beside the predicted tokens has
no gradient at x_L, and counts as 0 there.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from data_prep.files.progress_bar import Bar
from pretrain.analysis.subjects import num_predictions, states_of
from pretrain.data.batches import MaskedBatch
from pretrain.model.objectives.objective import Objective


class Gradients(NamedTuple):
    """The gradients of the mean loss over all predicted tokens; Frobenius norms, in nats.

    Attributes:
        weights: norm of dE/dW over all parameters of a block; block 1 first.
        states: norm of dE/dx_l over all tokens; l = 0 .. L.
        cosines: of dE/dx_l and dE/dx_L; l = 0 .. L.
        residual: norm of dE/dx_l - dE/dx_L over that of dE/dx_L; l = 0 .. L.
    """

    weights: list[float]
    states: list[float]
    cosines: list[float]
    residual: list[float]


Measured = dict[str, dict[int, Gradients]]  # by run and step


def measure_gradients(
    model: Objective, batches: Sequence[MaskedBatch], bar: Bar | None = None
) -> Gradients:
    """Run forward and backward passes over all batches.

    Args:
        model: in evaluation mode; its gradients are replaced.
        batches: whose predictions count equally.
        bar: gets one unit per row.
    """
    model.zero_grad(set_to_none=True)
    blocks = model.encoder.blocks
    predictions = num_predictions(batches)
    products = torch.zeros(3, len(blocks) + 1, dtype=torch.float64)
    for batch in batches:
        with states_of(blocks) as states:
            loss: Tensor = model(*batch) * (batch.num_predictions() / predictions)
        for state in states:
            state.retain_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        products += _products(_state_gradients(states, batch))
        if bar is not None:
            bar.update(len(batch.ids_BS))
    squares, with_last, differences = products
    weights = [
        [one.grad.double().square().sum() for one in block.parameters() if one.grad is not None]
        for block in blocks
    ]
    return Gradients(
        weights=[math.sqrt(sum(map(float, squares_of))) for squares_of in weights],
        states=squares.sqrt().tolist(),
        cosines=(with_last / (squares * squares[-1]).sqrt()).tolist(),
        residual=(differences / squares[-1]).sqrt().tolist(),
    )


def _state_gradients(states: Sequence[Tensor], batch: MaskedBatch) -> list[Tensor]:
    """Return dE/dx_l, l = 0 .. L, as [tokens, D] each, in fp64."""
    gradients = [one.grad.double() for one in states if one.grad is not None]
    last = gradients[-1]
    if last.dim() == 2:  # of the predicted tokens only
        whole = torch.zeros_like(gradients[0]).flatten(0, 1)
        gradients[-1] = whole.index_add_(0, batch.positions_M, last)
    return [one.reshape(-1, one.shape[-1]) for one in gradients]


def _products(gradients: Sequence[Tensor]) -> Tensor:
    """Return [3, L + 1]: dE/dx_l squared, times dE/dx_L, and the square of their difference."""
    last = gradients[-1]
    rows = [
        [one.square().sum() for one in gradients],
        [(one * last).sum() for one in gradients],
        [(one - last).square().sum() for one in gradients],
    ]
    return torch.tensor(rows, dtype=torch.float64)
