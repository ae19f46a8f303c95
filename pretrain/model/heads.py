"""The masked-language-model head, on the predicted positions only. M = predicted positions."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from data_prep.masking import IGNORED
from pretrain.config import ModelSettings
from pretrain.model.linear_cross_entropy import linear_cross_entropy


class MaskedLanguageModelHead(nn.Module):
    """BERT's head: dense, GELU, LayerNorm, and the token embeddings again as output weights."""

    def __init__(self, model: ModelSettings, *, fused_loss: bool = False) -> None:
        """Build the head.

        Args:
            model: shape.
            fused_loss: compute the loss by cpu_kernels.py.
        """
        super().__init__()
        self.fused_loss = fused_loss
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
            fused=self.fused_loss,
        )
        return summed / labels_M.ne(IGNORED).sum().clamp(min=1)
