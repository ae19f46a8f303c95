"""The losses of a task, and how predictions are derived from outputs.

Classes are trained by cross-entropy, several labels by that of each, tags by that of each word, and
answers by that of their first and last tokens among those of the row. Values are scaled to the size
of the head's first outputs and trained by squared error: those on a scale from 0 (STS-B) are
divided by the end of the scale, as in the TUPE authors' instructions; others get mean 0 and
standard deviation 1 over the training rows.

`split`: the `EncodedSplit` of the logits, which tags and answers need.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from finetune.tasks.task import Kind, Label, Task

LONGEST_ANSWER = 30  # tokens, as in BERT's code


class OfSequences:
    """What the outputs at [CLS] mean."""

    architecture = "SequenceClassification"  # in the names of transformers' classes
    problem = ""  # as they call it, if they do
    head = "classifier"  # the module
    is_of_tokens = False


@dataclass(frozen=True)
class Classes(OfSequences):
    """One of several labels, given by its index."""

    problem = "single_label_classification"
    num_outputs: int
    weights: tuple[float, ...] = ()  # of the labels; none: 1

    def loss(self, logits_BC: Tensor, labels: Sequence[Any]) -> Tensor:
        """Return the mean cross-entropy in nats, weighted as `F.cross_entropy` does."""
        labels_B = torch.tensor(labels, dtype=torch.int64, device=logits_BC.device)
        weights_C = logits_BC.new_tensor(self.weights) if self.weights else None
        return F.cross_entropy(logits_BC, labels_B, weights_C)

    def predictions(self, logits_NC: NDArray[numpy.float32], split: Any = None) -> list[Label]:
        """Return the index of the most probable class of each row."""
        return [*logits_NC.argmax(axis=1).tolist()]


class LabelSets(Classes):
    """Any number of labels, given by their indices; weights are of the presence of each."""

    problem = "multi_label_classification"

    def loss(self, logits_BC: Tensor, labels: Sequence[Any]) -> Tensor:
        """Return the mean binary cross-entropy in nats over rows and labels."""
        targets_BC = torch.zeros_like(logits_BC)
        for row_C, several in zip(targets_BC, labels, strict=True):
            row_C[list(several)] = 1
        weights_C = logits_BC.new_tensor(self.weights) if self.weights else None
        return F.binary_cross_entropy_with_logits(logits_BC, targets_BC, pos_weight=weights_C)

    def predictions(self, logits_NC: NDArray[numpy.float32], split: Any = None) -> list[Label]:
        """Return the indices of the labels that are more probable than not, of each row."""
        return [tuple(numpy.flatnonzero(row > 0).tolist()) for row in logits_NC]


@dataclass(frozen=True)
class Tags(Classes):
    """One of several labels for each word; `outside` is that of words without tokens."""

    architecture, problem, is_of_tokens = "TokenClassification", "", True
    outside: int = 0

    def loss(self, logits_MC: Tensor, labels: Sequence[Any]) -> Tensor:
        """Return the mean cross-entropy in nats over the words of all rows."""
        flat = [*chain(*labels)]  # rows inside one long word have none, whose mean is NaN
        return super().loss(logits_MC, flat) if flat else logits_MC.sum()

    def predictions(self, logits_NC: NDArray[numpy.float32], split: Any = None) -> list[Label]:
        """Return the most probable tag of each word of each example."""
        found = [[self.outside] * len(example.texts) for example in split.examples]
        best = iter(logits_NC.argmax(axis=1).tolist())
        for row in split.meaning:
            for word in row.where:
                found[row.example][word] = next(best)
        return [*map(tuple, found)]


@dataclass(frozen=True)
class Spans(OfSequences):
    """A part of a text, from one of the row's places to another, or [CLS]: no answer."""

    architecture, head, is_of_tokens = "QuestionAnswering", "qa_outputs", True
    may_be_none: bool = False
    num_outputs: int = 2  # that it begins, and that it ends there

    def loss(self, logits_MC: Tensor, labels: Sequence[Any]) -> Tensor:
        """Return the mean cross-entropy in nats of the first and the last place."""
        *ends, sizes = zip(*labels, strict=True)
        rows = torch.split(logits_MC, [*sizes])
        logits_BPC = pad_sequence([*rows], batch_first=True, padding_value=-torch.inf)
        ends_BC = torch.tensor(ends, device=logits_MC.device).T
        return F.cross_entropy(logits_BPC, ends_BC)

    def predictions(self, logits_NC: NDArray[numpy.float32], split: Any = None) -> list[Label]:
        """Return the answer of each example with the largest sum of logits; none is empty.

        A window without the answer learns [CLS] too: no answer needs all of them to say so.
        """
        best = [(-numpy.inf, "")] * len(split.examples)
        none = [numpy.inf] * len(split.examples)
        ends = split.rows.num_places.cumsum()
        for row, logits_PC in zip(split.meaning, numpy.split(logits_NC, ends[:-1]), strict=True):
            sums_PP = logits_PC[:, :1] + logits_PC[:, 1]
            none[row.example] = min(none[row.example], sums_PP[0, 0])
            lengths_PP = numpy.arange(len(sums_PP)) - numpy.arange(len(sums_PP))[:, None]
            sums_PP[(lengths_PP < 0) | (lengths_PP >= LONGEST_ANSWER)] = -numpy.inf
            sums_PP[0] = -numpy.inf
            first, last = divmod(int(sums_PP.argmax()), len(sums_PP))
            text = split.examples[row.example].texts[1][row.where[first, 0] : row.where[last, 1]]
            best[row.example] = max(best[row.example], (sums_PP[first, last], text.strip()))
        is_none = [self.may_be_none and a >= b for a, (b, _) in zip(none, best, strict=True)]
        return ["" if no else text for no, (_, text) in zip(is_none, best, strict=True)]


@dataclass(frozen=True)
class Values(OfSequences):
    """A number, trained as (number - centre) / spread."""

    problem = "regression"
    centre: float
    spread: float
    num_outputs: int = 1

    def loss(self, logits_BC: Tensor, labels: Sequence[Any]) -> Tensor:
        """Return the mean squared error of the scaled numbers."""
        labels_B = torch.tensor(labels, dtype=torch.float64)
        scaled_B = ((labels_B - self.centre) / self.spread).to(logits_BC.device, torch.float32)
        return F.mse_loss(logits_BC.squeeze(1), scaled_B)

    def predictions(self, logits_NC: NDArray[numpy.float32], split: Any = None) -> list[Label]:
        """Return the number of each row, in the units of the labels."""
        # In fp64: beside a centre such as a year or a time, fp32 rounds small spreads away.
        return [*(logits_NC[:, 0].astype(numpy.float64) * self.spread + self.centre).tolist()]


Target = Classes | Values | Spans


def target_of(task: Task, labels: Sequence[Any], *, balanced: bool = False) -> Target:
    """Return the target of a task with these training labels.

    `balanced` weighs a class by N / (C n_c), as scikit-learn does; of several labels the presence
    of each by (N - n_c) / n_c, its `pos_weight` in PyTorch. Classes without examples count as one.
    """
    if task.kind == "answers":
        return Spans(may_be_none=not all(labels))
    if task.labels:
        weights, several = (), task.kind == "multi-label"
        if balanced:
            found = numpy.concatenate([numpy.atleast_1d(each) for each in labels]).astype(int)
            counts_C = numpy.bincount(found, minlength=len(task.labels)).clip(1)
            size = len(labels) if several else len(found) / len(task.labels)
            absent_C = (size - counts_C).clip(1) if several else size
            weights = tuple((absent_C / counts_C).tolist())
        return target_of_labels(task.labels, task.kind, weights)
    if task.highest is not None:
        return Values(0.0, task.highest)
    spread = float(numpy.std(labels))
    return Values(float(numpy.mean(labels)), spread if spread > 0 else 1.0)


def target_of_labels(
    labels: Sequence[str], kind: Kind | None, weights: tuple[float, ...] = ()
) -> Classes:
    """Return the target of a task with these labels; see `target_of`."""
    if kind == "tags":
        return Tags(len(labels), weights, outside=labels.index("O") if "O" in labels else 0)
    return (LabelSets if kind == "multi-label" else Classes)(len(labels), weights)


def is_constant(target: Target, predictions: Sequence[Any]) -> bool:
    """Return whether a model predicts the same for every text: it has learned nothing."""
    if isinstance(target, Values):  # a thousandth of the spread of the labels: above rounding
        return float(numpy.ptp(predictions)) < 1e-3 * target.spread
    return not target.is_of_tokens and len(set(predictions)) == 1
