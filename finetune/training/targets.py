"""The losses of a task, and how predictions are derived from outputs.

Classes are trained by cross-entropy, several labels by that of each. Values are scaled to the size
of the head's first outputs and trained by squared error: those on a scale from 0 (STS-B) are
divided by the end of the scale, as in the TUPE authors' instructions; others get mean 0 and
standard deviation 1 over the training rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from finetune.tasks.task import Label, Task


@dataclass(frozen=True)
class Classes:
    """One of several labels, given by its index."""

    num_outputs: int
    weights: tuple[float, ...] = ()  # of the labels; none: 1

    def loss(self, logits_BC: Tensor, labels: Sequence[Any]) -> Tensor:
        """Return the mean cross-entropy in nats, weighted as `F.cross_entropy` does."""
        labels_B = torch.tensor(labels, dtype=torch.int64, device=logits_BC.device)
        weights_C = logits_BC.new_tensor(self.weights) if self.weights else None
        return F.cross_entropy(logits_BC, labels_B, weights_C)

    def outputs(self, logits_NC: NDArray[numpy.float32]) -> NDArray[numpy.float64]:
        """Return the input of the metrics: the logits, N x C."""
        return logits_NC.astype(numpy.float64)

    def predictions(self, logits_NC: NDArray[numpy.float32]) -> list[Label]:
        """Return the index of the most probable class of each row."""
        return [int(index) for index in logits_NC.argmax(axis=1)]


class LabelSets(Classes):
    """Any number of labels, given by their indices; weights are of the presence of each."""

    def loss(self, logits_BC: Tensor, labels: Sequence[Any]) -> Tensor:
        """Return the mean binary cross-entropy in nats over rows and labels."""
        targets_BC = torch.zeros_like(logits_BC)
        for row_C, several in zip(targets_BC, labels, strict=True):
            row_C[list(several)] = 1
        weights_C = logits_BC.new_tensor(self.weights) if self.weights else None
        return F.binary_cross_entropy_with_logits(logits_BC, targets_BC, pos_weight=weights_C)

    def predictions(self, logits_NC: NDArray[numpy.float32]) -> list[Label]:
        """Return the indices of the labels that are more probable than not, of each row."""
        return [tuple(numpy.flatnonzero(row > 0).tolist()) for row in logits_NC]


@dataclass(frozen=True)
class Values:
    """A number, trained as (number - centre) / spread."""

    centre: float
    spread: float
    num_outputs: int = 1

    def loss(self, logits_BC: Tensor, labels: Sequence[Any]) -> Tensor:
        """Return the mean squared error of the scaled numbers."""
        labels_B = torch.tensor(labels, dtype=torch.float64)
        scaled_B = ((labels_B - self.centre) / self.spread).to(logits_BC.device, torch.float32)
        return F.mse_loss(logits_BC.squeeze(1), scaled_B)

    def outputs(self, logits_NC: NDArray[numpy.float32]) -> NDArray[numpy.float64]:
        """Return the input of the metrics: N numbers in the units of the labels."""
        # In fp64: beside a centre such as a year or a time, fp32 rounds small spreads away.
        return logits_NC[:, 0].astype(numpy.float64) * self.spread + self.centre

    def predictions(self, logits_NC: NDArray[numpy.float32]) -> list[Label]:
        """Return the number of each row."""
        return [float(value) for value in self.outputs(logits_NC)]


Target = Classes | Values


def target_of(task: Task, labels: Sequence[Any], *, balanced: bool = False) -> Target:
    """Return the target of a task with these training labels.

    `balanced` weighs a class by N / (C n_c), as scikit-learn does; of several labels the presence
    of each by (N - n_c) / n_c, its `pos_weight` in PyTorch. Classes without examples count as one.
    """
    if task.labels:
        kind, size = (LabelSets, 1) if task.kind == "multi-label" else (Classes, len(task.labels))
        if not balanced:
            return kind(len(task.labels))
        found = numpy.concatenate([numpy.atleast_1d(each) for each in labels]).astype(int)
        counts_C = numpy.bincount(found, minlength=len(task.labels)).clip(1)
        weights_C = len(labels) / (size * counts_C) - (kind is LabelSets)
        return kind(len(task.labels), tuple(weights_C.tolist()))
    if task.highest is not None:
        return Values(0.0, task.highest)
    spread = float(numpy.std(labels))
    return Values(float(numpy.mean(labels)), spread if spread > 0 else 1.0)


def is_constant(target: Target, logits_NC: NDArray[numpy.float32]) -> bool:
    """Return whether a model predicts the same for every row: it has learned nothing."""
    if isinstance(target, Classes):
        return len(set(target.predictions(logits_NC))) == 1
    # A thousandth of the spread of the labels: above rounding errors.
    return float(numpy.ptp(logits_NC[:, 0])) < 1e-3
