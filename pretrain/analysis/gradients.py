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
from matplotlib.figure import Figure
from torch import Tensor

from pretrain.analysis import panels
from pretrain.analysis.subjects import Subject, measured_at_steps, states_of
from pretrain.data.batches import MaskedBatch
from pretrain.model.objectives.objective import Objective
from pretrain.reports.html import as_written, line_style

CAPTION = (
    "Above: norm of the gradient of the held-out loss with respect to the weights of "
    "each block, at each checkpoint. Below: the same over the blocks, at the first (thin) and "
    "the last checkpoint; size of the gradient with respect to the state x_l after block l, "
    "relative to that of the last one, and the cosine of the two (PLD Eq. 5)."
)


class Gradients(NamedTuple):
    """The gradients of the mean loss over all predicted tokens; Frobenius norms, in nats."""

    weights: list[float]  # norm of dE/dW over all parameters of a block; block 1 first
    states: list[float]  # norm of dE/dx_l over all tokens; l = 0 .. L
    cosines: list[float]  # of dE/dx_l and dE/dx_L; l = 0 .. L
    residual: list[float]  # norm of dE/dx_l - dE/dx_L over that of dE/dx_L; l = 0 .. L

    def relative(self) -> list[float]:
        """Return the norms of dE/dx_l over that of dE/dx_L."""
        return [norm / self.states[-1] for norm in self.states]


def findings(subjects: Sequence[Subject]) -> panels.Findings:
    """Return the gradients of each run at each of its steps."""
    measured = measured_at_steps("gradients", subjects, measure_gradients)
    weights, states = list[panels.Record](), list[panels.Record]()
    for run, steps in measured.items():
        for step, found in steps.items():
            place = {"run": run, "step": step}
            weights += [
                {**place, "block": block, "weight_gradient_norm_nats": value}
                for block, value in enumerate(found.weights, 1)
            ]
            columns = {
                "state_gradient_norm_nats": found.states,
                "norm_times_last": found.relative(),
                "cosine_with_last": found.cosines,
                "residual_term": found.residual,
            }
            states += [
                {
                    **place,
                    "layer": layer,
                    **{name: column[layer] for name, column in columns.items()},
                }
                for layer in range(len(found.states))
            ]
    return panels.Findings(
        tables={"weight_gradients": weights, "state_gradients": states},
        figures={"gradients": draw_gradients(measured)},
    )


def measure_gradients(model: Objective, batches: Sequence[MaskedBatch]) -> Gradients:
    """Run forward and backward passes over all batches, whose predictions count equally.

    The model is in evaluation mode; its gradients are replaced.
    """
    model.zero_grad(set_to_none=True)
    blocks = model.encoder.blocks
    predictions = sum(batch.num_predictions() for batch in batches)
    # dE/dx_l squared, times dE/dx_L, and the square of their difference.
    products = torch.zeros(3, len(blocks) + 1, dtype=torch.float64)
    for batch in batches:
        with states_of(blocks) as states:
            loss: Tensor = model(*batch) * (batch.num_predictions() / predictions)
        for state in states:
            state.retain_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        gradients = [state.grad.double() for state in states if state.grad is not None]
        if gradients[-1].dim() == 2:  # of the predicted tokens only
            whole = torch.zeros_like(gradients[0]).flatten(0, 1)
            gradients[-1] = whole.index_add_(0, batch.positions_M, gradients[-1])
        found = [one.reshape(-1, one.shape[-1]) for one in gradients]
        last = found[-1]
        for layer, one in enumerate(found):
            squares = (one.square().sum(), (one * last).sum(), (one - last).square().sum())
            products[:, layer] += torch.stack(squares)
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


def draw_gradients(measured: dict[str, dict[int, Gradients]]) -> Figure:
    """Draw a panel per run over its steps, and three panels of all runs over depth."""
    figure = panels.empty_figure(CAPTION, height=2 * panels.PANEL_HEIGHT)
    runs, (weights, sizes, cosines) = panels.rows_of_panels(figure, (len(measured), 3))
    curves = {run: {n: one.weights for n, one in found.items()} for run, found in measured.items()}
    panels.draw_over_training(runs, curves, "norm of dE/dW of a block, nats")
    panels.legend_of_blocks(figure, runs)
    weights.set(title="weights", xlabel="block", ylabel="norm of dE/dW, nats")
    sizes.set(title="states: size", xlabel="layer l", ylabel="|dE/dx_l| / |dE/dx_L|")
    label = "cosine of dE/dx_l, dE/dx_L"
    cosines.set(title="states: direction", xlabel="layer l", ylabel=label)
    for number, (run, steps) in enumerate(measured.items()):
        for step in dict.fromkeys((min(steps), max(steps))):
            found, is_last = steps[step], step == max(steps)
            style = {**line_style(number), "linewidth": 1.6 if is_last else 0.7}
            layers, name = range(len(found.states)), as_written(run) if is_last else None
            weights.plot(layers[1:], found.weights, label=name, **style)
            sizes.plot(layers, found.relative(), **style)
            cosines.plot(layers, found.cosines, **style)
    for axes in (*runs, weights, sizes):
        panels.log_scale(axes)
    for axes in (weights, sizes, cosines):
        panels.whole_ticks(axes)
    weights.legend(handlelength=3)
    return figure
