"""Gradients of the weights and of the states of each block, over the checkpoints of runs.

The loss is that of held-out rows. With x_0 the input of the first block and x_l the output of
block l, PLD Eq. 5 is, for PreLN,

    dE/dx_l = dE/dx_L + dE/dx_L d/dx_l (sum of the branches of blocks l + 1 .. L).

The first term reaches every block as it is; the second is what the blocks add. For PostLN, where
norms stand on the path, the same difference is measured. A state beside the predicted tokens has
no gradient at x_L, and counts as 0 there.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from data_prep.files.progress_bar import Bar, progress_bar
from pretrain.analysis.findings import Cell, Findings, Point, Table
from pretrain.analysis.gradients_picture import draw_gradients
from pretrain.analysis.panels import when
from pretrain.analysis.subjects import Subject, num_predictions, num_rows, seeded_loss
from pretrain.data.batches import MaskedBatch
from pretrain.model.objectives import Objective


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


def findings(subjects: Sequence[Subject]) -> Findings:
    """Return the gradients of each run at each of its steps."""
    measured: dict[str, dict[int, Gradients]] = {}
    batches = {subject.label: subject.batches() for subject in subjects}
    total = sum(len(subject.steps) * num_rows(batches[subject.label]) for subject in subjects)
    with progress_bar("gradients", total, "row", shown=True) as bar:
        for subject in subjects:
            measured[subject.label] = {
                step: measure_gradients(subject.model(step), batches[subject.label], bar)
                for step in subject.steps
            }
    caption = _caption(
        measured, {subject.label: subject.settings.model.norm for subject in subjects}
    )
    return Findings(
        shown=_short(measured),
        tables={"weight_gradients": _weights(measured), "state_gradients": _states(measured)},
        figures={"gradients": draw_gradients(measured, caption)},
        captions=[caption],
        points=[
            Point(run, f"weight_gradients/block_{block:02d}", step, value)
            for run, steps in measured.items()
            for step, found in steps.items()
            for block, value in enumerate(found.weights, 1)
        ],
    )


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
        with _StatesOf(blocks) as states:
            loss = seeded_loss(model, batch) * (batch.num_predictions() / predictions)
            loss.backward()  # type: ignore[no-untyped-call]
        products += _products(states.gradients(batch))
        if bar is not None:
            bar.update(len(batch.ids_BS))
    squares, with_last, differences = products
    return Gradients(
        weights=[_norm_of_gradients(block) for block in blocks],
        states=squares.sqrt().tolist(),
        cosines=(with_last / (squares * squares[-1]).sqrt()).tolist(),
        residual=(differences / squares[-1]).sqrt().tolist(),
    )


class _StatesOf:
    """Keeps the input of each block and the output of the last one, with their gradients."""

    def __init__(self, blocks: nn.ModuleList) -> None:
        self._found: list[Tensor] = []
        self._hooks = [block.register_forward_pre_hook(self._before) for block in blocks]
        self._hooks.append(blocks[-1].register_forward_hook(self._after))

    def __enter__(self) -> "_StatesOf":
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def gradients(self, batch: MaskedBatch) -> list[Tensor]:
        """Return dE/dx_l, l = 0 .. L, as [tokens, D] each, in fp64."""
        found = [state.grad for state in self._found]
        gradients = [one.double() for one in found if one is not None]
        last = gradients[-1]
        if last.dim() == 2:  # of the predicted tokens only
            whole = torch.zeros_like(gradients[0]).flatten(0, 1)
            gradients[-1] = whole.index_add_(0, batch.positions_M, last)
        return [one.reshape(-1, one.shape[-1]) for one in gradients]

    def _before(self, block: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        del block
        self._keep(inputs[0])

    def _after(self, block: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        del block, inputs
        self._keep(output)

    def _keep(self, state: Tensor) -> None:
        state.retain_grad()
        self._found.append(state)


def _products(gradients: Sequence[Tensor]) -> Tensor:
    """Return [3, L + 1]: dE/dx_l squared, times dE/dx_L, and the square of their difference."""
    last = gradients[-1]
    rows = [
        [one.square().sum() for one in gradients],
        [(one * last).sum() for one in gradients],
        [(one - last).square().sum() for one in gradients],
    ]
    return torch.tensor(rows, dtype=torch.float64)


def _norm_of_gradients(block: nn.Module) -> float:
    gradients = [one.grad.double() for one in block.parameters() if one.grad is not None]
    return math.sqrt(sum(float(gradient.square().sum()) for gradient in gradients))


Measured = dict[str, dict[int, Gradients]]  # by run and step


def _weights(measured: Measured) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (run, step, block, value)
        for run, steps in measured.items()
        for step, found in steps.items()
        for block, value in enumerate(found.weights, 1)
    ]
    return Table(("run", "step", "block", "weight_gradient_norm_nats"), rows)


def _states(measured: Measured) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (run, step, layer, norm, norm / found.states[-1], cosine, residual)
        for run, steps in measured.items()
        for step, found in steps.items()
        for layer, (norm, cosine, residual) in enumerate(
            zip(found.states, found.cosines, found.residual, strict=True)
        )
    ]
    columns = ("state_gradient_norm_nats", "norm_times_last", "cosine_with_last", "residual_term")
    return Table(("run", "step", "layer", *columns), rows)


def _short(measured: Measured) -> Table:
    """Return, for the first and the last step of each run, the ends of the network."""
    rows: list[tuple[Cell, ...]] = []
    for run, steps in measured.items():
        for step in dict.fromkeys((min(steps), max(steps))):
            found = steps[step]
            first, last = found.weights[0], found.weights[-1]
            x0 = found.states[0] / found.states[-1]
            rows.append((run, step, first, last, first / last, x0, found.cosines[0]))
    return Table(
        ("run", "step", "dE/dW first", "last", "first/last", "dE/dx_0 / dE/dx_L", "cosine"), rows
    )


def _caption(measured: Measured, norms: Mapping[str, str]) -> str:
    named = ", ".join(
        f"{run} ({norms[run]} norm) {when(list(steps))}" for run, steps in measured.items()
    )
    return (
        f"{named}. Above: norm of the gradient of the held-out loss with respect to the weights of "
        "each block, at each checkpoint. Below: the same over the blocks, at the first (thin) and "
        "the last checkpoint; size of the gradient with respect to the state x_l after block l, "
        "relative to that of the last one, and the cosine of the two (PLD Eq. 5)."
    )
