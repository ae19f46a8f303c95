"""BERT's objective. Shapes as in positions.py; M = predicted positions."""

import torch
from torch import Tensor

from data_prep.masking import IGNORED
from pretrain.config.settings import DEFAULT_OBJECTIVE, ModelSettings
from pretrain.model.encoder import Scales, initialise
from pretrain.model.execution_plan import PLAIN, ExecutionPlan
from pretrain.model.heads import MaskedLanguageModelHead
from pretrain.model.objectives.objective import Objective


class MaskedLanguageModel(Objective):
    """Predict the hidden tokens (Devlin et al. 2018); computes the predicted positions only."""

    held_out_loss = DEFAULT_OBJECTIVE
    head: MaskedLanguageModelHead

    def __init__(self, model: ModelSettings, execution: ExecutionPlan = PLAIN) -> None:
        super().__init__(model, execution)
        self.head = MaskedLanguageModelHead(
            model.width, model.vocabulary_size, model.layer_norm_epsilon
        )
        initialise(self, model.initializer_range)

    def forward(
        self, ids_BS: Tensor, positions_M: Tensor, labels_M: Tensor, branch_scales: Scales = None
    ) -> Tensor:
        """Return the mean cross-entropy in nats; arguments as in `Objective.forward`.

        Without any label it is 0.
        """
        x_MD = self.encoder(ids_BS, branch_scales, positions_M=positions_M)
        summed = self.summed_loss(self.head, self.head.transform(x_MD), labels_M)
        return summed / labels_M.ne(IGNORED).sum().clamp(min=1)

    def logits(
        self,
        ids_BS: Tensor,
        positions_M: Tensor | None,
        branch_scales: Scales = None,
        lengths_B: Tensor | None = None,
    ) -> Tensor:
        """Return logits_MV at the flat positions `row * S + column`, or logits_BSV of all."""
        x_MD = self.encoder(ids_BS, branch_scales, lengths_B, positions_M)
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
        return predictions * (model.width * model.width + model.width * model.vocabulary_size)
