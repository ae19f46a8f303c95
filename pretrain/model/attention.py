"""Multi-head self-attention with a position term that comes from outside.

Shape letters as in positions.py.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pretrain.config import ModelSettings
from pretrain.model.positions import PositionEncoding


class PositionTerms(NamedTuple):
    """What one forward pass shares among its layers; see `PositionEncoding`."""

    bias_NSS: Tensor | None
    query_key_NSH: tuple[Tensor, Tensor] | None


def position_terms(encoding: PositionEncoding, sequence_length: int) -> PositionTerms:
    """Compute the terms of a forward pass, once for all layers."""
    return PositionTerms(
        encoding.attention_bias(sequence_length), encoding.query_key_terms(sequence_length)
    )


class Attention(nn.Module):
    """Self-attention over whole rows: no padding exists in pre-training."""

    def __init__(self, model: ModelSettings, score_scale: float) -> None:
        super().__init__()
        self.num_heads, self.score_scale = model.num_heads, score_scale
        self.query_key_value = nn.Linear(model.width, 3 * model.width)
        self.output = nn.Linear(model.width, model.width)
        self.dropout_probability = model.attention_dropout

    def forward(self, x_BSD: Tensor, terms: PositionTerms) -> Tensor:
        """Return the mixed values, shape BSD."""
        batch, length, width = x_BSD.shape
        heads = (batch, length, 3, self.num_heads, width // self.num_heads)
        q_BNSH, k_BNSH, v_BNSH = self.query_key_value(x_BSD).view(heads).permute(2, 0, 3, 1, 4)
        if terms.query_key_NSH is not None:
            q_NSH, k_NSH = terms.query_key_NSH
            q_BNSH, k_BNSH = q_BNSH + q_NSH.to(q_BNSH.dtype), k_BNSH + k_NSH.to(k_BNSH.dtype)
        dropout = self.dropout_probability if self.training else 0.0
        mixed_BNSH = biased_attention(
            q_BNSH * self.score_scale, k_BNSH, v_BNSH, terms.bias_NSS, dropout=dropout
        )
        output: Tensor = self.output(mixed_BNSH.transpose(1, 2).reshape(batch, length, width))
        return output


def biased_attention(
    q_BNSH: Tensor, k_BNSH: Tensor, v_BNSH: Tensor, bias_NSS: Tensor | None, *, dropout: float
) -> Tensor:
    """Return softmax(q k^T + bias) v with already scaled queries, shape BNSH (TUPE Eq. 2).

    Written out, because `scaled_dot_product_attention` falls back to an fp32 path for a bias that
    needs a gradient: three times slower in bf16 on a CPU. The bias is cast here, in each layer,
    so that its gradient is summed over the layers in fp32.
    """
    scores_BNSS = q_BNSH @ k_BNSH.transpose(-1, -2)
    if bias_NSS is not None:
        scores_BNSS = scores_BNSS + bias_NSS.to(scores_BNSS.dtype)
    weights_BNSS = torch.softmax(scores_BNSS, dim=-1, dtype=scores_BNSS.dtype)
    if dropout:
        weights_BNSS = F.dropout(weights_BNSS, dropout)
    return weights_BNSS @ v_BNSH
