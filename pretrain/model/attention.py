"""Multi-head self-attention; the position terms are an input that all layers share.

Exported models carry a copy of this file, so it imports nothing but torch and other such files.
Shape letters as in positions.py; M = predicted positions.
"""

from torch import Tensor, nn

from pretrain.model.position_encoding import PositionSettings, PositionTerms
from pretrain.model.torch_attention import AttentionBackend, AttentionInputs, eager


def at_positions(x_BSD: Tensor, positions_M: Tensor | None) -> Tensor:
    """Return x_MD at the flat positions `row * S + column`, or x_BSD if they are None."""
    return x_BSD if positions_M is None else x_BSD.flatten(0, 1).index_select(0, positions_M)


class Attention(nn.Module):
    """Self-attention; every row is full unless lengths are given."""

    def __init__(
        self, model: PositionSettings, score_scale: float, attend: AttentionBackend = eager
    ) -> None:
        super().__init__()
        self.num_heads, self.score_scale, self.attend = model.num_heads, score_scale, attend
        self.query_key_value = nn.Linear(model.width, 3 * model.width)
        self.output = nn.Linear(model.width, model.width)
        self.dropout_probability = model.attention_dropout

    def forward(
        self,
        x_BSD: Tensor,
        terms: PositionTerms,
        lengths_B: Tensor | None = None,
        positions_M: Tensor | None = None,
    ) -> Tensor:
        """Return the projected output, shape BSD, or MD with `positions_M`.

        See `AttentionInputs` for lengths_B and `Block.forward` for positions_M.
        """
        mixed_BNSH = self.attend(self.inputs(x_BSD, terms, lengths_B))
        mixed_BSD = mixed_BNSH.transpose(1, 2).flatten(2)
        output: Tensor = self.output(at_positions(mixed_BSD, positions_M))
        return output

    def inputs(
        self, x_BSD: Tensor, terms: PositionTerms, lengths_B: Tensor | None = None
    ) -> AttentionInputs:
        """Return what `attend` gets."""
        batch, length, width = x_BSD.shape
        shape = (batch, length, 3, self.num_heads, width // self.num_heads)
        qkv_BS3NH = self.query_key_value(x_BSD).view(shape)
        dropout = self.dropout_probability if self.training else 0.0
        return AttentionInputs(qkv_BS3NH, terms, self.score_scale, dropout, lengths_B)
