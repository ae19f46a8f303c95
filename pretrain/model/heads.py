"""Heads: hidden states to logits.

Exported models carry a copy of this file, so it imports nothing but torch and other such files.
Shapes as in positions.py; M = predicted positions, V = vocabulary, C = classes, or 1.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pretrain.model.blocks import WideLayerNorm


class MaskedLanguageModelHead(nn.Module):
    """BERT's head: dense, GELU, LayerNorm, and the token embeddings again as output weights."""

    def __init__(
        self, width: int, vocabulary_size: int, epsilon: float, *, input_width: int | None = None
    ) -> None:
        """Build it; `input_width`: of the hidden states, if it is another than `width`."""
        super().__init__()
        self.dense = nn.Linear(input_width or width, width)
        self.norm = WideLayerNorm(width, eps=epsilon)
        self.output_bias = nn.Parameter(torch.zeros(vocabulary_size))

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


class DiscriminatorHead(nn.Module):
    """ELECTRA's head: dense, GELU, and one logit per token: that it was replaced."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.dense_prediction = nn.Linear(width, 1)

    def forward(self, x_BSD: Tensor) -> Tensor:
        """Return logits_BS in fp32 at least."""
        logits_BS: Tensor = self.dense_prediction(F.gelu(self.dense(x_BSD))).squeeze(-1)
        return logits_BS.to(torch.promote_types(logits_BS.dtype, torch.float32))


class ClassificationHead(nn.Module):
    """RoBERTa's: dropout, dense, tanh, dropout, linear; TUPE's authors leave the first out."""

    def __init__(self, width: int, num_outputs: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.dense = nn.Linear(width, width)
        self.output = nn.Linear(width, num_outputs)

    def forward(self, cls_BD: Tensor) -> Tensor:
        """Return logits_BC, a row for each [CLS]."""
        hidden_BD = torch.tanh(self.dense(self.dropout(cls_BD)))
        logits_BC: Tensor = self.output(self.dropout(hidden_BD))
        return logits_BC
