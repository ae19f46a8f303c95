"""A Transformer block whose norms stand before or after the branches. Shapes as in positions.py."""

import torch.nn.functional as F
from torch import Tensor, nn

from pretrain.config import ModelSettings
from pretrain.model.attention import Attention, PositionTerms


class FeedForward(nn.Module):
    """Two linear maps around a GELU (the exact one: on CPUs it is also the faster one)."""

    def __init__(self, model: ModelSettings) -> None:
        super().__init__()
        self.inner = nn.Linear(model.width, model.feedforward_width)
        self.output = nn.Linear(model.feedforward_width, model.width)

    def forward(self, x_BSD: Tensor) -> Tensor:
        """Apply the same function to every position."""
        output: Tensor = self.output(F.gelu(self.inner(x_BSD)))
        return output


class Block(nn.Module):
    """Attention and feed-forward, each a residual branch.

    norm = "post": LayerNorm after each sum, as in BERT. norm = "pre": before each branch, which
    leaves an identity path from input to output (PLD appendix B).
    """

    def __init__(self, model: ModelSettings, score_scale: float) -> None:
        super().__init__()
        self.norm_first = model.norm == "pre"
        self.attention_norm = nn.LayerNorm(model.width, eps=model.layer_norm_epsilon)
        self.attention = Attention(model, score_scale)
        self.feedforward_norm = nn.LayerNorm(model.width, eps=model.layer_norm_epsilon)
        self.feedforward = FeedForward(model)
        self.dropout = nn.Dropout(model.dropout)

    def forward(self, x_BSD: Tensor, terms: PositionTerms, branch_scale: float = 1.0) -> Tensor:
        """Run the block; both branches are multiplied by `branch_scale` (1/p under layer drop)."""
        if self.norm_first:
            attended_BSD = self.attention(self.attention_norm(x_BSD), terms)
            x_BSD = x_BSD + self._scaled(attended_BSD, branch_scale)
            mapped_BSD = self.feedforward(self.feedforward_norm(x_BSD))
            return x_BSD + self._scaled(mapped_BSD, branch_scale)
        attended_BSD = self.attention(x_BSD, terms)
        x_BSD = self.attention_norm(x_BSD + self._scaled(attended_BSD, branch_scale))
        mapped_BSD = self.feedforward(x_BSD)
        output: Tensor = self.feedforward_norm(x_BSD + self._scaled(mapped_BSD, branch_scale))
        return output

    def _scaled(self, branch_BSD: Tensor, branch_scale: float) -> Tensor:
        branch_BSD = self.dropout(branch_BSD)
        return branch_BSD if branch_scale == 1.0 else branch_BSD * branch_scale
