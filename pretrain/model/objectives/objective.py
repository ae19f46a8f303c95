"""What every pre-training objective is: an encoder, a head, a loss, and what these cost.

Shapes as in positions.py; M = predicted positions.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn

from data_prep.masking import IGNORED
from pretrain.config.errors import ConfigError
from pretrain.config.settings import ElectraSettings, ModelSettings
from pretrain.model.encoder import Encoder, Scales
from pretrain.model.execution_plan import PLAIN, ExecutionPlan
from pretrain.model.heads import MaskedLanguageModelHead
from pretrain.model.kernels.cross_entropy import linear_cross_entropy


class Network(NamedTuple):
    """One of the encoders that an objective trains, as its cost and memory are counted."""

    model: ModelSettings  # its shape
    # Multiply-adds outside of its blocks and positions, see `Objective.head_multiply_adds`.
    outside: Callable[..., float]
    predicts_words: bool  # it is computed, from its last attention on, at the predictions only


class Part(NamedTuple):
    """A mean over a micro-batch; both tensors have no dimensions and no gradient."""

    total: Tensor
    number: Tensor  # that the total is divided by
    weight: float = 0.0  # in the loss; 0: reported only

    def sums(self) -> Tensor:
        """Return total and number as [2] in fp64."""
        return torch.stack([self.total.double(), self.number.double()])


class Objective(nn.Module, ABC):
    """An encoder and the loss that it is trained on; calling it returns the loss, for DeepSpeed.

    Losses are compared between runs only where `held_out_loss` is equal.
    """

    encoder: Any
    held_out_loss: ClassVar[str]  # name of the loss in evaluation
    head: nn.Module
    # Of the last forward pass, where the loss is a sum: it is the sum of weight x mean.
    parts: dict[str, Part]

    def __init__(self, model: ModelSettings, execution: ExecutionPlan = PLAIN) -> None:
        """Build the encoder; a subclass adds its head as `head`, and calls `initialise`."""
        super().__init__()
        self.execution = execution
        self.parts = {}
        self.encoder = self.encoder_of(model, execution)

    @staticmethod
    def encoder_of(model: ModelSettings, execution: ExecutionPlan) -> Any:
        """Return the encoder: an `Encoder`, or what is called as one and has its parts."""
        return Encoder(model, execution)

    @classmethod
    def build(
        cls, model: ModelSettings, electra: ElectraSettings | None, execution: ExecutionPlan
    ) -> Self:
        """Build it from those settings of a run that it reads."""
        return cls(model, execution)

    @abstractmethod
    def forward(
        self, ids_BS: Tensor, positions_M: Tensor, labels_M: Tensor, branch_scales: Scales = None
    ) -> Tensor:
        """Return the mean loss of a micro-batch.

        Args:
            ids_BS: token ids, some of them masked.
            positions_M: flat positions `row * S + column` of the hidden tokens.
            labels_M: their true ids, or IGNORED.
            branch_scales: see `Encoder.forward`.
        """

    def summed_loss(
        self, head: MaskedLanguageModelHead, hidden_MD: Tensor, labels_M: Tensor
    ) -> Tensor:
        """Return the summed cross-entropy, in nats, over labels that are not IGNORED.

        Args:
            head: of words.
            hidden_MD: what its `transform` returned.
            labels_M: ids of words.
        """
        # ZeRO-3 gathers a weight where it is read from its module, and frees it again.
        return linear_cross_entropy(
            hidden_MD,
            self.encoder.token_embeddings.weight,
            head.output_bias,
            labels_M,
            ignored=IGNORED,
            method=self.execution.loss_method,
        )

    def set_output_bias(self, bias_V: Tensor) -> None:
        """Set the bias of the head.

        Raises:
            ConfigError: the head does not predict words.
        """
        raise ConfigError("this objective predicts no words; leave model.output_bias at zeros")

    @classmethod
    def networks(cls, model: ModelSettings, electra: ElectraSettings | None) -> list[Network]:
        """Return the encoders that it trains; this one's `outside` is its head."""
        return [Network(model, cls.head_multiply_adds, predicts_words=True)]

    @staticmethod
    @abstractmethod
    def head_multiply_adds(
        model: ModelSettings, *, rows: float, length: int, predictions: float
    ) -> float:
        """Return the multiply-adds of a forward pass besides those of the encoder.

        Args:
            model: shape.
            rows: of the micro-batch.
            length: tokens of a row.
            predictions: predicted positions of all rows.
        """
