"""The losses of a task, and how predictions are derived from outputs.

Classes are trained by cross-entropy. Values are scaled to the size of the head's first outputs and
trained by squared error: those on a scale from 0 (STS-B) are divided by the end of the scale, as in
the TUPE authors' instructions; others get mean 0 and standard deviation 1 over the training rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from finetune.tasks.task import Task


@dataclass(frozen=True)
class Classes:
    """One of several labels, given by its index."""

    num_outputs: int

    def loss(self, logits_BC: Tensor, labels: Sequence[float]) -> Tensor:
        """Return the mean cross-entropy in nats."""
        labels_B = torch.tensor(labels, dtype=torch.int64, device=logits_BC.device)
        return F.cross_entropy(logits_BC, labels_B)

    def outputs(self, logits_NC: NDArray[numpy.float32]) -> NDArray[numpy.float64]:
        """Return the input of the metrics: the logits, N x C."""
        return logits_NC.astype(numpy.float64)

    def predictions(self, logits_NC: NDArray[numpy.float32]) -> list[float]:
        """Return the index of the most probable class of each row."""
        return [int(index) for index in logits_NC.argmax(axis=1)]


@dataclass(frozen=True)
class Values:
    """A number, trained as (number - centre) / spread."""

    centre: float
    spread: float
    num_outputs: int = 1

    def loss(self, logits_BC: Tensor, labels: Sequence[float]) -> Tensor:
        """Return the mean squared error of the scaled numbers."""
        labels_B = torch.tensor(labels, dtype=torch.float64)
        scaled_B = ((labels_B - self.centre) / self.spread).to(logits_BC.device, torch.float32)
        return F.mse_loss(logits_BC.squeeze(1), scaled_B)

    def outputs(self, logits_NC: NDArray[numpy.float32]) -> NDArray[numpy.float64]:
        """Return the input of the metrics: N numbers in the units of the labels."""
        # In fp64: beside a centre such as a year or a time, fp32 rounds small spreads away.
        return logits_NC[:, 0].astype(numpy.float64) * self.spread + self.centre

    def predictions(self, logits_NC: NDArray[numpy.float32]) -> list[float]:
        """Return the number of each row."""
        return [float(value) for value in self.outputs(logits_NC)]


Target = Classes | Values


def target_of(task: Task, labels: Sequence[float]) -> Target:
    """Return the target of a task with these training labels."""
    if task.kind == "classification":
        return Classes(len(task.labels))
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
