"""Pre-training objectives: what is computed of the hidden states, and its loss.

A new one is a subclass of `Objective` and a line in OBJECTIVES. Shapes as in positions.py; M =
predicted positions.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from data_prep.masking import IGNORED
from pretrain.config.errors import ConfigError, lookup
from pretrain.config.settings import DEFAULT_OBJECTIVE, ModelSettings
from pretrain.kernels.cross_entropy import linear_cross_entropy
from pretrain.model.blocks import WideLayerNorm
from pretrain.model.encoder import Encoder, initialise
from pretrain.model.execution_plan import PLAIN, ExecutionPlan


class Objective(nn.Module, ABC):
    """An encoder and the loss that it is trained on; calling it returns the loss, for DeepSpeed.

    Losses are compared between runs only where `held_out_loss` is equal.
    """

    held_out_loss: ClassVar[str]  # name of the loss in evaluation
    head: nn.Module

    def __init__(self, model: ModelSettings, execution: ExecutionPlan = PLAIN) -> None:
        """Build the encoder; a subclass adds its head as `head`, and calls `initialise`."""
        super().__init__()
        self.execution = execution
        self.encoder = Encoder(model, execution)

    @abstractmethod
    def forward(
        self,
        ids_BS: Tensor,
        positions_M: Tensor,
        labels_M: Tensor,
        branch_scales: Sequence[float] | None = None,
    ) -> Tensor:
        """Return the mean loss of a micro-batch.

        Args:
            ids_BS: token ids, some of them masked.
            positions_M: flat positions `row * S + column` of the hidden tokens.
            labels_M: their true ids, or IGNORED.
            branch_scales: see `Encoder.forward`.
        """

    def set_output_bias(self, bias_V: Tensor) -> None:
        """Set the bias of the head.

        Raises:
            ConfigError: the head does not predict words.
        """
        raise ConfigError("this objective predicts no words; leave model.output_bias at zeros")

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


class MaskedLanguageModelHead(nn.Module):
    """BERT's head: dense, GELU, LayerNorm, and the token embeddings again as output weights."""

    def __init__(self, model: ModelSettings, execution: ExecutionPlan = PLAIN) -> None:
        super().__init__()
        self.execution = execution
        self.dense = nn.Linear(model.width, model.width)
        self.norm = WideLayerNorm(model.width, eps=model.layer_norm_epsilon)
        self.output_bias = nn.Parameter(torch.zeros(model.vocabulary_size))

    def forward(self, x_MD: Tensor, token_embeddings_VD: Tensor) -> Tensor:
        """Return logits_MV."""
        hidden_MD = self.transform(x_MD)
        return F.linear(hidden_MD, token_embeddings_VD, self.output_bias.to(hidden_MD.dtype))

    def transform(self, x_MD: Tensor) -> Tensor:
        """Return hidden_MD, which is compared with every token embedding."""
        hidden_MD: Tensor = self.norm(F.gelu(self.dense(x_MD)))
        return hidden_MD

    def loss(self, x_MD: Tensor, token_embeddings_VD: Tensor, labels_M: Tensor) -> Tensor:
        """Return the mean cross-entropy in nats over labels that are not IGNORED; 0 without any."""
        summed = linear_cross_entropy(
            self.transform(x_MD),
            token_embeddings_VD,
            self.output_bias,
            labels_M,
            ignored=IGNORED,
            method=self.execution.loss_method,
        )
        return summed / labels_M.ne(IGNORED).sum().clamp(min=1)


class MaskedLanguageModel(Objective):
    """Predict the hidden tokens (Devlin et al. 2018); computes the predicted positions only."""

    held_out_loss = DEFAULT_OBJECTIVE
    head: MaskedLanguageModelHead

    def __init__(self, model: ModelSettings, execution: ExecutionPlan = PLAIN) -> None:
        super().__init__(model, execution)
        self.head = MaskedLanguageModelHead(model, execution)
        initialise(self, model.initializer_range)

    def forward(
        self,
        ids_BS: Tensor,
        positions_M: Tensor,
        labels_M: Tensor,
        branch_scales: Sequence[float] | None = None,
    ) -> Tensor:
        """Return the mean cross-entropy in nats; arguments as in `Objective.forward`."""
        x_MD = self.encoder(ids_BS, branch_scales, positions_M=positions_M)
        return self.head.loss(x_MD, self.encoder.token_embeddings.weight, labels_M)

    def logits(
        self, ids_BS: Tensor, positions_M: Tensor, branch_scales: Sequence[float] | None = None
    ) -> Tensor:
        """Return logits_MV at the flat positions `row * S + column` given in positions_M."""
        x_MD = self.encoder(ids_BS, branch_scales, positions_M=positions_M)
        logits_MV: Tensor = self.head(x_MD, self.encoder.token_embeddings.weight)
        return logits_MV

    @torch.no_grad()
    def set_output_bias(self, bias_V: Tensor) -> None:
        """Set the bias of the head."""
        self.head.output_bias.copy_(bias_V)

    @staticmethod
    def head_multiply_adds(
        model: ModelSettings, *, rows: float, length: int, predictions: float
    ) -> float:
        """Count the dense layer and the product with all token embeddings, per prediction."""
        del rows, length
        return predictions * (model.width * model.width + model.width * model.vocabulary_size)


OBJECTIVES: dict[str, type[Objective]] = {
    DEFAULT_OBJECTIVE: MaskedLanguageModel,
}


def objective_named(name: str) -> type[Objective]:
    """Return the class of an objective.

    Raises:
        ConfigError: there is no objective of this name.
    """
    return lookup(OBJECTIVES, name, setting="objective")
