"""A Transformer block whose norms stand before or after the branches. Shapes as in positions.py."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pretrain.config import ModelSettings
from pretrain.model.attention import Attention
from pretrain.model.attention_backends import PositionTerms


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

    def __init__(
        self, model: ModelSettings, score_scale: float, *, attention: str = "eager"
    ) -> None:
        super().__init__()
        self.norm_first = model.norm == "pre"
        self.attention_norm = nn.LayerNorm(model.width, eps=model.layer_norm_epsilon)
        self.attention = Attention(model, score_scale, backend=attention)
        self.feedforward_norm = nn.LayerNorm(model.width, eps=model.layer_norm_epsilon)
        self.feedforward = FeedForward(model)
        self.dropout = nn.Dropout(model.dropout)

    def forward(
        self,
        x_BSD: Tensor,
        terms: PositionTerms,
        branch_scale: float | Tensor | None = None,
        lengths_B: Tensor | None = None,
    ) -> Tensor:
        """Run the block.

        Args:
            x_BSD: input.
            terms: of the positions.
            branch_scale: by which both branches are multiplied (1/p under layer drop). Of a block
                that is compiled, a tensor without dimensions: a number would be compiled into it,
                anew for each value.
            lengths_B: see `AttentionBackend`.
        """
        if self.norm_first:
            attended_BSD = self.attention(self.attention_norm(x_BSD), terms, lengths_B)
            x_BSD = self._sum(x_BSD, attended_BSD, branch_scale)
            mapped_BSD = self.feedforward(self.feedforward_norm(x_BSD))
            return self._sum(x_BSD, mapped_BSD, branch_scale)
        attended_BSD = self.attention(x_BSD, terms, lengths_B)
        x_BSD = self.attention_norm(self._sum(x_BSD, attended_BSD, branch_scale))
        mapped_BSD = self.feedforward(x_BSD)
        output: Tensor = self.feedforward_norm(self._sum(x_BSD, mapped_BSD, branch_scale))
        return output

    def _sum(
        self, x_BSD: Tensor, branch_BSD: Tensor, branch_scale: float | Tensor | None
    ) -> Tensor:
        branch_BSD = self.dropout(branch_BSD)
        if branch_scale is None:
            return x_BSD + branch_BSD
        if not isinstance(branch_scale, Tensor):
            if x_BSD.dtype.itemsize < torch.float32.itemsize:
                # On a CPU a sum in bf16 rounds its factor as well: 12/11 to 12/11 + 0.3 %.
                return x_BSD + branch_BSD * branch_scale
            return torch.add(x_BSD, branch_BSD, alpha=branch_scale)
        # Rounded once: a bf16 tensor times a scale on the device would round the scale first.
        wide = torch.promote_types(branch_BSD.dtype, branch_scale.dtype)
        return x_BSD + (branch_BSD.to(wide) * branch_scale).to(branch_BSD.dtype)
