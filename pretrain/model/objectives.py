"""Pre-training objectives: the masked language model, its head and its loss.

The head computes the predicted positions only. Shapes as in positions.py; M = predicted positions.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from data_prep.masking import IGNORED
from pretrain.config.settings import ModelSettings
from pretrain.kernels.cross_entropy import linear_cross_entropy
from pretrain.model.encoder import Encoder, initialise
from pretrain.model.execution_plan import PLAIN, ExecutionPlan


class MaskedLanguageModelHead(nn.Module):
    """BERT's head: dense, GELU, LayerNorm, and the token embeddings again as output weights."""

    def __init__(self, model: ModelSettings, execution: ExecutionPlan = PLAIN) -> None:
        super().__init__()
        self.execution = execution
        self.dense = nn.Linear(model.width, model.width)
        self.norm = nn.LayerNorm(model.width, eps=model.layer_norm_epsilon)
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
            fused=self.execution.fuses_loss,
        )
        return summed / labels_M.ne(IGNORED).sum().clamp(min=1)


class MaskedLanguageModel(nn.Module):
    """Encoder and head; calling it returns the loss, as DeepSpeed's engine wants it."""

    def __init__(self, model: ModelSettings, execution: ExecutionPlan = PLAIN) -> None:
        super().__init__()
        self.execution = execution
        self.encoder = Encoder(model, execution)
        self.head = MaskedLanguageModelHead(model, execution)
        initialise(self, model.initializer_range)

    def forward(
        self,
        ids_BS: Tensor,
        positions_M: Tensor,
        labels_M: Tensor,
        branch_scales: Sequence[float] | None = None,
    ) -> Tensor:
        """Return the mean loss over the predicted positions; arguments as in `logits`."""
        x_MD = self.encoder(ids_BS, branch_scales, positions_M=positions_M)
        return self.head.loss(x_MD, self.encoder.token_embeddings.weight, labels_M)

    def logits(
        self, ids_BS: Tensor, positions_M: Tensor, branch_scales: Sequence[float] | None = None
    ) -> Tensor:
        """Return logits_MV at the flat positions `row * S + column` given in positions_M."""
        x_MD = self.encoder(ids_BS, branch_scales, positions_M=positions_M)
        logits_MV: Tensor = self.head(x_MD, self.encoder.token_embeddings.weight)
        return logits_MV
