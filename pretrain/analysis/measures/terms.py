"""The share of each correlation of TUPE Eq. 6 in the scores of encoders that add p to the words.

Eq. 6 expands a score of the first block, ((w_i + p_i) W^Q)((w_j + p_j) W^K)^T / sqrt(d), into
word-word, word-position, position-word and position-position; the query is named first. A norm and
biases stand between the sum and the score, so a fifth term remains, "constant": what has biases in
the query or in the key. BERT-R has b_{j-i} besides. What is the same for all keys of a query is
left out: softmax ignores it. For the parts see input_parts.py; in deeper blocks they are defined by
means, not by Eq. 6.

The size of a term is its variance over the keys of a query, mean over rows and queries. Its share
is that of the sum of the variances of all terms.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from data_prep.files.progress_bar import Bar
from pretrain.analysis.measures.input_parts import (
    Parts,
    attention_inputs,
    deeper_parts,
    first_parts,
    mean_inputs,
)
from pretrain.data.batches import MaskedBatch
from pretrain.model.attention import Attention
from pretrain.model.blocks import Block
from pretrain.model.objectives.objective import Objective

TERMS = (
    *("word-word", "word-position", "position-word", "position-position"),
    *("constant", "relative"),
)


class HeadTerms(NamedTuple):
    """The terms of a head, in the order of TERMS; `relative` is 0 without b_{j-i}.

    Attributes:
        variances: over keys, mean over rows and queries, in squared units of a score.
        with_sum: covariances with the sum of all terms, which add up to its variance.
    """

    variances: list[float]
    with_sum: list[float]

    def shares(self) -> list[float]:
        """Return the variances as shares of their sum."""
        return [one / sum(self.variances) for one in self.variances]

    def shares_of_sum(self) -> list[float]:
        """Return the covariances as shares of the variance of the sum; they can be negative."""
        return [one / sum(self.with_sum) for one in self.with_sum]


Measured = dict[str, list[list[HeadTerms]]]  # by run; of each block, of each head


def measure_terms(
    model: Objective, batches: Sequence[MaskedBatch], bar: Bar | None = None
) -> list[list[HeadTerms]]:
    """Return the terms of each head of each block, first block first.

    Args:
        model: in evaluation mode, with an encoding that adds positions to the words.
        batches: of rows; rows that fill the last batch are left out.
        bar: gets one unit per row.
    """
    encoder = model.encoder
    means = mean_inputs(model, batches)
    sums = [torch.zeros(()) for _ in encoder.blocks]
    rows = 0
    for batch in batches:
        ids_BS, inputs = attention_inputs(model, batch)
        relative_NSS = encoder.positions.attention_bias(ids_BS.shape[1])
        for number, block in enumerate(encoder.blocks):
            parts = (
                deeper_parts(inputs[number], means[number])
                if number
                else first_parts(encoder, ids_BS)
            )
            assert isinstance(block, Block)
            terms = centred_terms(block.attention, parts, relative_NSS)
            sums[number] = sums[number] + _products(terms).sum(0)
        rows += len(ids_BS)
        if bar is not None:
            bar.update(len(batch.ids_BS))
    return [[HeadTerms(*head.tolist()) for head in (sums_N2T / rows).unbind()] for sums_N2T in sums]


@torch.no_grad()
def centred_terms(attention: Attention, parts: Parts, relative_NSS: Tensor | None) -> list[Tensor]:
    """Return the terms of the scores, each less its mean over the keys; they broadcast to BNSS."""
    width = attention.query_key_value.in_features
    query_DD, key_DD, _ = attention.query_key_value.weight.view(3, width, width)
    bias_D = attention.query_key_value.bias[:width]

    def heads(projected: Tensor) -> Tensor:
        return projected.view(*projected.shape[:-1], attention.num_heads, -1).transpose(-3, -2)

    def keys(part: Tensor) -> Tensor:
        key = heads(part @ key_DD.T)
        return key - key.mean(-2, keepdim=True)

    word, position, constant = (part.expand_as(parts.word) for part in parts)
    queries = [heads(part @ query_DD.T) for part in (word, position)]
    words, positions, constants = (keys(part) for part in (word, position, constant))
    pairs = [(query, key) for query in queries for key in (words, positions)]
    terms = [query @ key.transpose(-1, -2) * attention.score_scale for query, key in pairs]
    constant_query = heads(constant @ query_DD.T + bias_D)
    with_constant = constant_query @ (words + positions + constants).transpose(-1, -2)
    from_rest = (queries[0] + queries[1]) @ constants.transpose(-1, -2)
    terms.append((with_constant + from_rest) * attention.score_scale)
    none = torch.zeros(())
    relative = none if relative_NSS is None else relative_NSS - relative_NSS.mean(-1, keepdim=True)
    return [*terms, relative.expand_as(terms[0])]


def _products(terms: Sequence[Tensor]) -> Tensor:
    """Return [B, N, 2, T]: variances of terms and covariances with their sum, mean over queries."""
    whole = sum(terms)
    variances = [term.square().mean((-1, -2), dtype=torch.float64) for term in terms]
    with_sum = [(term * whole).mean((-1, -2), dtype=torch.float64) for term in terms]
    return torch.stack([torch.stack(variances, -1), torch.stack(with_sum, -1)], -2)
