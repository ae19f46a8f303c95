"""A Transformer block whose norms stand before or after the branches.

Exported models carry a copy of this file, so it imports nothing but torch and other such files.
Shape letters as in positions.py; M = predicted positions. What may be either BSD or MD has none.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pretrain.model.attention import Attention, at_positions
from pretrain.model.position_encoding import PositionSettings, PositionTerms
from pretrain.model.torch_attention import AttentionBackend, eager


class WideLayerNorm(nn.LayerNorm):
    """LayerNorm in the type of its weights, which returns the type of its input.

    Both differ for bf16 under autocast. torch on a CPU would sum the gradients of the weights in
    bf16 (5 % off over 2048 rows); on CUDA it would return fp32.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension."""
        return super().forward(x.to(self.weight.dtype)).to(x.dtype)


class FeedForward(nn.Module):
    """Two linear maps around a GELU (the exact one: on CPUs it is also the faster one)."""

    def __init__(self, model: PositionSettings) -> None:
        super().__init__()
        self.inner = nn.Linear(model.width, model.feedforward_width)
        self.output = nn.Linear(model.feedforward_width, model.width)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the same function to every position."""
        output: Tensor = self.output(F.gelu(self.inner(x)))
        return output


class Block(nn.Module):
    """Attention and feed-forward, each a residual branch.

    norm = "post": LayerNorm after each sum, as in BERT. norm = "pre": before each branch, which
    leaves an identity path from input to output (PLD appendix B).
    """

    def __init__(
        self, model: PositionSettings, score_scale: float, attend: AttentionBackend = eager
    ) -> None:
        super().__init__()
        self.norm_first = model.norm == "pre"
        self.attention_norm = WideLayerNorm(model.width, eps=model.layer_norm_epsilon)
        self.attention = Attention(model, score_scale, attend)
        self.feedforward_norm = WideLayerNorm(model.width, eps=model.layer_norm_epsilon)
        self.feedforward = FeedForward(model)
        self.dropout = nn.Dropout(model.dropout)

    def forward(
        self,
        x_BSD: Tensor,
        terms: PositionTerms,
        branch_scale: float | Tensor | None = None,
        lengths_B: Tensor | None = None,
        positions_M: Tensor | None = None,
    ) -> Tensor:
        """Run the block; the output is BSD, or MD with `positions_M`.

        Args:
            x_BSD: input.
            terms: of the positions.
            branch_scale: by which both branches are multiplied (1/p under layer drop). Of a block
                that is compiled, a tensor without dimensions: a number would be compiled into it,
                anew for each value.
            lengths_B: see `AttentionInputs`.
            positions_M: flat positions `sequence * S + place` to compute after attention, the only
                step that reads other positions; None: all of them.
        """
        if self.norm_first:
            attended = self.attention(self.attention_norm(x_BSD), terms, lengths_B, positions_M)
            x = self._sum(at_positions(x_BSD, positions_M), attended, branch_scale)
            return self._sum(x, self.feedforward(self.feedforward_norm(x)), branch_scale)
        attended = self.attention(x_BSD, terms, lengths_B, positions_M)
        x = self._sum(at_positions(x_BSD, positions_M), attended, branch_scale)
        x = self.attention_norm(x)
        output: Tensor = self.feedforward_norm(self._sum(x, self.feedforward(x), branch_scale))
        return output

    def _sum(self, x: Tensor, branch: Tensor, branch_scale: float | Tensor | None) -> Tensor:
        branch = self.dropout(branch)
        if branch_scale is None:
            return x + branch
        if not isinstance(branch_scale, Tensor):
            if x.dtype.itemsize < torch.float32.itemsize:
                # On a CPU a sum in bf16 rounds its factor as well: 12/11 to 12/11 + 0.3 %.
                return x + branch * branch_scale
            return torch.add(x, branch, alpha=branch_scale)
        # Rounded once: a bf16 tensor times a scale on the device would round the scale first.
        wide = torch.promote_types(branch.dtype, branch_scale.dtype)
        return x + (branch.to(wide) * branch_scale).to(branch.dtype)
