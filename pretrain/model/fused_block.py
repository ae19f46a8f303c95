"""A Transformer block for CPUs, whose kernels are fused_layers.py. Shapes as in blocks.py."""

import torch
from torch import Tensor, nn

from pretrain.model.attention import at_positions
from pretrain.model.attention_backends import PositionTerms
from pretrain.model.blocks import Block
from pretrain.model.fused_layers import (
    add,
    add_and_normalize,
    linear,
    linear_gelu,
    linear_heads,
    normalize,
)


class FusedBlock(Block):
    """The same function of the same parameters as `Block`."""

    def forward(
        self,
        x_BSD: Tensor,
        terms: PositionTerms,
        branch_scale: float | Tensor | None = None,
        lengths_B: Tensor | None = None,
        positions_M: Tensor | None = None,
    ) -> Tensor:
        """Run the block; arguments as in `Block.forward`, the scale a number."""
        scale = 1.0 if branch_scale is None else float(branch_scale)
        dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x_BSD.dtype
        first, second = self.attention_norm, self.feedforward_norm
        if self.norm_first:
            x_BSD, normal_BSD = normalize(x_BSD, first, dtype)
            attended = self._attend(normal_BSD, terms, lengths_B, positions_M)
            x = at_positions(x_BSD, positions_M)
            x, normal = add_and_normalize(x, *attended, scale, second, "sum", "narrow")
            return add(x, *self._map(normal), scale)
        attended = self._attend(x_BSD.to(dtype), terms, lengths_B, positions_M)
        x = at_positions(x_BSD, positions_M)
        x, normal = add_and_normalize(x, *attended, scale, first, "wide", "narrow")
        (output,) = add_and_normalize(x, *self._map(normal), scale, second, "wide")
        return output

    def _attend(
        self,
        x_BSD: Tensor,
        terms: PositionTerms,
        lengths_B: Tensor | None,
        positions_M: Tensor | None,
    ) -> tuple[Tensor, Tensor | None]:
        attention = self.attention
        heads = linear_heads(x_BSD, attention.query_key_value, attention.num_heads)
        mixed_BSD = attention.mix(*heads, terms, lengths_B)
        return self._branch(attention.output, at_positions(mixed_BSD, positions_M))

    def _map(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        feedforward = self.feedforward
        return self._branch(feedforward.output, linear_gelu(x, feedforward.inner))

    def _branch(self, output: nn.Linear, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the last product of a branch, and its bias unless it has been added."""
        if self.training and self.dropout.p:
            return self.dropout(output(x)), None
        return linear(x, output.weight), output.bias
