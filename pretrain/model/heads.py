"""The heads of the objectives: hidden states to logits, and their losses.

Shapes as in positions.py; M = predicted positions, V = vocabulary.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from data_prep.masking import IGNORED
from pretrain.config.settings import ModelSettings
from pretrain.kernels.cross_entropy import linear_cross_entropy
from pretrain.model.blocks import WideLayerNorm
from pretrain.model.execution_plan import PLAIN, ExecutionPlan


class MaskedLanguageModelHead(nn.Module):
    """BERT's head: dense, GELU, LayerNorm, and the token embeddings again as output weights."""

    def __init__(
        self,
        model: ModelSettings,
        execution: ExecutionPlan = PLAIN,
        *,
        input_width: int | None = None,
    ) -> None:
        """Build it.

        Args:
            model: its width is that of the token embeddings.
            execution: how the loss is computed.
            input_width: of the hidden states, if it is another.
        """
        super().__init__()
        self.execution = execution
        self.dense = nn.Linear(input_width or model.width, model.width)
        self.norm = WideLayerNorm(model.width, eps=model.layer_norm_epsilon)
        self.output_bias = nn.Parameter(torch.zeros(model.vocabulary_size))

    def forward(self, x_MD: Tensor, token_embeddings_VD: Tensor) -> Tensor:
        """Return logits_MV."""
        return self.logits(self.transform(x_MD), token_embeddings_VD)

    def transform(self, x_MD: Tensor) -> Tensor:
        """Return hidden_MD, which is compared with every token embedding."""
        hidden_MD: Tensor = self.norm(F.gelu(self.dense(x_MD)))
        return hidden_MD

    def logits(self, hidden_MD: Tensor, token_embeddings_VD: Tensor) -> Tensor:
        """Return logits_MV of what `transform` returned."""
        return F.linear(hidden_MD, token_embeddings_VD, self.output_bias.to(hidden_MD.dtype))

    def loss(self, x_MD: Tensor, token_embeddings_VD: Tensor, labels_M: Tensor) -> Tensor:
        """Return the mean cross-entropy in nats over labels that are not IGNORED; 0 without any."""
        summed = self.summed_loss(self.transform(x_MD), token_embeddings_VD, labels_M)
        return summed / labels_M.ne(IGNORED).sum().clamp(min=1)

    def summed_loss(
        self, hidden_MD: Tensor, token_embeddings_VD: Tensor, labels_M: Tensor
    ) -> Tensor:
        """Return the sum of the cross-entropy, of what `transform` returned."""
        return linear_cross_entropy(
            hidden_MD,
            token_embeddings_VD,
            self.output_bias,
            labels_M,
            ignored=IGNORED,
            method=self.execution.loss_method,
        )


class DiscriminatorHead(nn.Module):
    """ELECTRA's head: dense, GELU, and one logit per token: that it was replaced."""

    def __init__(self, model: ModelSettings) -> None:
        super().__init__()
        self.dense = nn.Linear(model.width, model.width)
        self.dense_prediction = nn.Linear(model.width, 1)

    def forward(self, x_BSD: Tensor) -> Tensor:
        """Return logits_BS in fp32 at least."""
        logits_BS: Tensor = self.dense_prediction(F.gelu(self.dense(x_BSD))).squeeze(-1)
        return logits_BS.to(torch.promote_types(logits_BS.dtype, torch.float32))
