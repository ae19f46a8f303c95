"""The training of one trial: a plain PyTorch loop over one model, task, learning rate and seed.

Everything random is a function of the seed, the epoch and the step: a repeated trial has the same
scores, on a CPU with the same number of threads bit for bit.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.tensorboard import SummaryWriter

from finetune.protocol import Protocol
from finetune.results.result import Scores
from finetune.tasks.task import Label
from finetune.training.batches import Batch, training_batches
from finetune.training.encoding import EncodedSplit, EncodedTask
from finetune.training.layer_rates import rate_factors, split_by_rate
from finetune.training.metrics import scores_of
from finetune.training.model import (
    AnyTaskModel,
    logits_of_batch,
    logits_of_rows,
    task_model,
    uses_bf16,
)
from finetune.training.targets import Target, is_constant
from pretrain.config.settings.transformers_config import FIELDS
from pretrain.convert.pretrained import Pretrained
from pretrain.engine.optimizers import TorchAdamW
from pretrain.schedules.learning_rate import learning_rate_at

# Losses are copied from the device every so many steps: each copy makes a GPU wait.
FETCH_STEPS = 20

# Separates the random stream of dropout from every other use of the seed.
DROPOUT_STREAM = 0x64726F70

# Setting of a protocol -> names in configurations of transformers, of heads too.
DROPOUTS = {
    "dropout": (*FIELDS["dropout"], "classifier_dropout", "seq_classif_dropout", "cls_dropout"),
    "attention_dropout": FIELDS["attention_dropout"],
}


class Diverged(ArithmeticError):
    """A loss or an output is not finite."""


@dataclass(frozen=True)
class Outcome:
    """Scores and predictions after the last epoch."""

    scores: Scores
    is_constant: bool  # the same prediction for every row of every development split
    # By split, in its order. Of development splits, and of test splits if they were requested.
    predictions: dict[str, list[Label]]


def build_task_model(
    pretrained: Pretrained,
    protocol: Protocol,
    *,
    target: Target,
    seed: int,
    takes_weights: bool = True,
    attention: str = "eager",
) -> AnyTaskModel:
    """Build the model; the head, and without `takes_weights` everything, is drawn from the seed."""
    torch.manual_seed(seed)
    changes: dict[str, Any] = {name: getattr(protocol, name) for name in DROPOUTS}
    if isinstance(config := pretrained.model.transformers, dict):
        rates = {each: changes[ours] for ours, theirs in DROPOUTS.items() for each in theirs}
        rates = {name: rate for name, rate in rates.items() if name in config}
        changes |= {"transformers": config | rates, "folder": None}
    settings = pretrained.model.model_copy(update=changes)
    model = task_model(settings, target, attention=attention)
    if takes_weights:
        model.load_encoder(pretrained.weights)
    return model


class FineTuning:
    """A model being fine-tuned on a task."""

    def __init__(
        self,
        model: AnyTaskModel,
        data: EncodedTask,
        protocol: Protocol,
        *,
        learning_rate: float,
        seed: int,
        device: torch.device,
    ) -> None:
        """Move the model to the device and build its optimizer."""
        self.model, self.data, self.protocol = model.to(device), data, protocol
        self.seed = seed
        self.epochs = protocol.epochs_on(data.task.name)
        self.steps_per_epoch = math.ceil(len(data.train.rows) / protocol.batch)
        self._rates = protocol.learning_rate(learning_rate)
        self._optimizer = TorchAdamW().build(model, protocol.optimizer())
        self._optimizer.param_groups[:] = split_by_rate(
            self._optimizer.param_groups, rate_factors(model, protocol.layer_decay)
        )
        self._uses_bf16 = uses_bf16(protocol.precision, device)

    def run(
        self, curves: SummaryWriter, read: Callable[[int], None], *, predicts_test: bool = False
    ) -> Outcome:
        """Train for all epochs and score after each of them; the last scores count.

        `read` receives how many examples a step or the scores of a split have read.

        Raises:
            Diverged: a loss or an output is not finite.
        """
        data, target = self.data, self.data.target

        def predicted(split: EncodedSplit) -> list[Label]:
            logits_NC = self.logits(split)
            read(len(split.examples))
            return target.predictions(logits_NC, split)

        for epoch in range(self.epochs):
            self._train_epoch(epoch, curves, read)
            found = {name: predicted(split) for name, split in data.development.items()}
            scores = {
                name: scores_of(data.task, found[name], split.labels)
                for name, split in data.development.items()
            }
            for split, metrics in scores.items():
                for name, value in metrics.items():
                    curves.add_scalar(f"{split}/{name}", value, epoch + 1)
        constant = all(is_constant(target, each) for each in found.values())
        if predicts_test:
            found |= {name: predicted(split) for name, split in data.test.items()}
        return Outcome(scores, constant, found)

    def train_step(
        self, batch: Batch, labels: Sequence[Label], *, epoch: int, place: int
    ) -> Tensor:
        """Take the optimizer step at `place` of an epoch; return its loss, still on the device."""
        # Dropout has no generator of its own in PyTorch: the global one is set for each step.
        words = numpy.random.SeedSequence([self.seed, epoch, place, DROPOUT_STREAM])
        torch.manual_seed(int(words.generate_state(1, numpy.uint64)[0]))
        self.model.train()
        for group in self._optimizer.param_groups:
            group["lr"] = self.learning_rate(epoch, place) * group["learning_rate_factor"]
        logits_BC = logits_of_batch(self.model, batch, uses_bf16=self._uses_bf16)
        loss = self.data.target.loss(logits_BC, labels)
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if self.protocol.max_gradient_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.protocol.max_gradient_norm)
        self._optimizer.step()
        return loss.detach()

    def learning_rate(self, epoch: int, place: int) -> float:
        """Return the learning rate of the step at `place` of an epoch: that of the head."""
        step = epoch * self.steps_per_epoch + place
        return learning_rate_at(step, self._rates, self.epochs * self.steps_per_epoch)

    def logits(self, split: EncodedSplit) -> NDArray[numpy.float32]:
        """Return the logits of every row in its order, N x C.

        Raises:
            Diverged: one is not finite.
        """
        found = logits_of_rows(self.model, split.rows, uses_bf16=self._uses_bf16)
        if not numpy.isfinite(found).all():
            raise Diverged("the model's outputs are not finite; try a smaller learning rate")
        return found

    def _train_epoch(self, epoch: int, curves: SummaryWriter, read: Callable[[int], None]) -> None:
        train, losses = self.data.train, list[Tensor]()
        order = training_batches(
            train.rows.lengths, self.protocol.batch, seed=self.seed, epoch=epoch
        )
        for place, numbers in enumerate(order):
            labels = [train.label(number) for number in numbers]
            batch = train.rows.batch(numbers)
            losses.append(self.train_step(batch, labels, epoch=epoch, place=place))
            read(train.num_begun(numbers))
            if len(losses) < FETCH_STEPS and place < len(order) - 1:
                continue
            values: list[float] = torch.stack(losses).tolist()
            last = epoch * self.steps_per_epoch + place + 1
            for step, value in enumerate(values, start=last - len(values) + 1):
                if not math.isfinite(value):
                    raise Diverged(
                        f"the loss is {value} at step {step}; try a smaller learning rate"
                    )
            curves.add_scalar("train/loss", sum(values) / len(values), last)
            curves.add_scalar("train/learning_rate", self.learning_rate(epoch, place), last)
            losses = []
