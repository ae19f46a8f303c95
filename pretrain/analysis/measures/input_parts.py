"""What the input of an attention is made of: words, positions, and what is the same everywhere.

In the first block this is exact. Its input is the sum of a word's and a position's vector after one
LayerNorm (two for PreLN), and for a given token a LayerNorm is linear: with the mean and the
standard deviation of the whole sum, each summand is centred and scaled by itself. What the biases
of the norms add is the constant.

Deeper, words and positions are mixed, and TUPE Eq. 6 is not defined. There the constant is the mean
of the input over all tokens, the position the mean at that position less the constant, and the
word what remains. With R rows, about 1 / R of what varies between rows is counted as position.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from pretrain.analysis.subjects import encoder_inputs, inputs_of
from pretrain.data.batches import MaskedBatch
from pretrain.model.attention import Attention
from pretrain.model.blocks import Block
from pretrain.model.encoder import Encoder
from pretrain.model.objectives.objective import Objective
from pretrain.model.positions import BertAbsolute


class Parts(NamedTuple):
    """Three vectors whose sum is the input of an attention; each broadcasts to [B, S, D]."""

    word: Tensor
    position: Tensor
    constant: Tensor


@torch.no_grad()
def attention_inputs(model: Objective, batch: MaskedBatch) -> tuple[Tensor, list[Tensor]]:
    """Return ids_BS and the input of each block's attention, [B, S, D] each.

    Rows that fill the batch are left out.
    """
    ids_BS = encoder_inputs(model, batch)
    attentions = [module for module in model.encoder.modules() if isinstance(module, Attention)]
    with inputs_of(attentions) as found:
        model.encoder(ids_BS)
    return ids_BS, found


@torch.no_grad()
def first_parts(encoder: Encoder, ids_BS: Tensor) -> Parts:
    """Return the parts of the first block's input, for an encoding that adds p to the words."""
    assert isinstance(encoder.positions, BertAbsolute)
    position_SD = encoder.positions.position_embeddings.weight[: ids_BS.shape[1]]
    nothing = torch.zeros_like(position_SD[0])
    parts = Parts(encoder.token_embeddings(ids_BS), position_SD, nothing)
    parts = normalised(parts, encoder.embedding_norm)
    first = encoder.blocks[0]
    assert isinstance(first, Block)
    return normalised(parts, first.attention_norm) if first.norm_first else parts


def normalised(parts: Parts, norm: nn.LayerNorm) -> Parts:
    """Return the parts of a LayerNorm's output, given those of its input."""
    variance = sum(parts).var(-1, correction=0, keepdim=True)  # type: ignore[union-attr]
    scale = norm.weight * (variance + norm.eps).rsqrt()
    word, position, constant = ((part - part.mean(-1, keepdim=True)) * scale for part in parts)
    return Parts(word, position, constant + norm.bias)


def deeper_parts(input_BSD: Tensor, mean_SD: Tensor) -> Parts:
    """Return the parts of a deeper block's input, given the mean input at each position."""
    constant_D = mean_SD.mean(0)
    return Parts(input_BSD - mean_SD, mean_SD - constant_D, constant_D)


def mean_inputs(model: Objective, batches: Sequence[MaskedBatch]) -> list[Tensor]:
    """Return for each block the mean input of its attention at each position, [S, D]."""
    dtype = model.encoder.token_embeddings.weight.dtype
    sums = [torch.zeros((), dtype=torch.float64) for _ in model.encoder.blocks]
    rows = 0
    for batch in batches:
        ids_BS, inputs = attention_inputs(model, batch)
        sums = [before + one.double().sum(0) for before, one in zip(sums, inputs, strict=True)]
        rows += len(ids_BS)
    return [(one / rows).to(dtype) for one in sums]
