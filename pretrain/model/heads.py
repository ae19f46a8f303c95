"""The masked-language-model head, on the predicted positions only. M = predicted positions."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from data_prep.masking import IGNORED
from pretrain.config import ModelSettings


class MaskedLanguageModelHead(nn.Module):
    """BERT's head: dense, GELU, LayerNorm, and the token embeddings again as output weights."""

    def __init__(self, model: ModelSettings) -> None:
        super().__init__()
        self.dense = nn.Linear(model.width, model.width)
        self.norm = nn.LayerNorm(model.width, eps=model.layer_norm_epsilon)
        self.output_bias = nn.Parameter(torch.zeros(model.vocabulary_size))

    def forward(self, x_MD: Tensor, token_embeddings_VD: Tensor) -> Tensor:
        """Return logits_MV."""
        hidden_MD = self.norm(F.gelu(self.dense(x_MD)))
        return F.linear(hidden_MD, token_embeddings_VD, self.output_bias.to(hidden_MD.dtype))


def masked_language_model_loss(logits_MV: Tensor, labels_M: Tensor) -> Tensor:
    """Return the mean cross-entropy in nats over the labels that are not IGNORED; 0 if all are.

    In fp32: a loss computed from bf16 logits is rounded to steps of 0.06.
    """
    summed = F.cross_entropy(logits_MV.float(), labels_M, ignore_index=IGNORED, reduction="sum")
    return summed / labels_M.ne(IGNORED).sum().clamp(min=1)
