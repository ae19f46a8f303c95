"""The sums of an evaluation: means over all batches of all ranks, not means of their means."""

from typing import NamedTuple

import torch
from torch import Tensor

from pretrain.model.objectives.objective import Objective, Part

LOSS = "loss"  # the name of the only part of an objective whose loss is no sum


class Evaluation(NamedTuple):
    """The result of an evaluation."""

    loss: float  # in nats
    num_predictions: int
    parts: dict[str, float]  # of an objective whose loss is a sum; see `Objective.parts`


class HeldOutSums:
    """Adds batches up, in fp64 on their device; the same parts in each of them."""

    def __init__(self) -> None:
        self._totals: dict[str, Tensor] = {}
        self._weights: dict[str, float] = {}
        self._num_predictions = 0

    def add(self, model: Objective, loss: Tensor, num_predictions: int) -> None:
        """Add a batch; its loss is of the last forward pass of `model`."""
        whole = Part(loss.double() * num_predictions, loss.new_tensor(num_predictions), 1.0)
        for name, part in (model.parts or {LOSS: whole}).items():
            pair = part.sums()
            self._totals[name] = self._totals[name] + pair if name in self._totals else pair
            self._weights[name] = part.weight
        self._num_predictions += num_predictions

    def table(self) -> Tensor:
        """Return all sums as one tensor [parts + 1, 2] of fp64, to be added up over the ranks."""
        pairs = list(self._totals.values())
        predictions = pairs[0].new_tensor([self._num_predictions, 0])
        return torch.stack([*pairs, predictions])

    def evaluation(self, table: Tensor) -> Evaluation:
        """Return the means of a table that was added up."""
        *pairs, (predictions, _) = table.tolist()
        means = {
            name: total / number if number else 0.0
            for name, (total, number) in zip(self._totals, pairs, strict=True)
        }
        loss = sum(factor * means[name] for name, factor in self._weights.items() if factor)
        parts = {name: mean for name, mean in means.items() if name != LOSS}
        return Evaluation(loss, int(predictions), parts)
