"""Learned positional correlations: their pattern per head, [CLS], and their rank.

TUPE Fig. 5 (heat maps of v_ij), Fig. 3 (row and column of [CLS]) and Prop. 1 (rank). Defined for
encodings that add a bias to the attention that depends on no input. It is computed in fp64, so
that its rank is that of the weights.
"""

from typing import NamedTuple

import numpy
import torch
from numpy.typing import NDArray

from pretrain.analysis.measures.head_patterns import HeadPattern, head_pattern, softmax
from pretrain.model.position_encoding import PositionEncoding
from pretrain.model.position_tables import ProjectedPositions, RelativeBias

Matrices = NDArray[numpy.float64]  # [N, S, S]: heads, queries, keys

PROJECTED, RELATIVE, WHOLE = "P-term", "B", "v"


class Head(NamedTuple):
    """What was found of one head.

    Attributes:
        correlations: v_ij [S, S], added to the scaled scores.
        pattern: of its weights over words.
        row_mean: of v_0j, [CLS] to the words: theta_1 in TUPE, without effect.
        column_mean: of v_i0, the words to [CLS]: theta_2 in TUPE.
        words_mean: of v_ij, words to words.
        to_cls: mean weight of [CLS] in softmax of v_i, over the words i.
        singular_values: descending, by part: v, its P-term (P U^Q)(P U^K)^T / sqrt(2d) and B.
    """

    correlations: NDArray[numpy.float64]
    pattern: HeadPattern
    row_mean: float
    column_mean: float
    words_mean: float
    to_cls: float
    singular_values: dict[str, NDArray[numpy.float64]]

    def ranks(self) -> dict[str, int]:
        """Return the number of singular values above rounding, by part."""
        return {part: rank(values) for part, values in self.singular_values.items()}


def measure_positions(encoding: PositionEncoding, length: int) -> list[Head]:
    """Return what is found of each head; `encoding` has an attention bias, and becomes fp64."""
    parts = correlation_parts(encoding.double(), length)
    return [
        _head({part: matrices[number] for part, matrices in parts.items()})
        for number in range(len(parts[WHOLE]))
    ]


@torch.no_grad()
def correlation_parts(encoding: PositionEncoding, length: int) -> dict[str, Matrices]:
    """Return v, and the P-term and B that it is made of, before the reset of [CLS]."""
    bias_NSS = encoding.attention_bias(length)
    assert bias_NSS is not None
    parts = {WHOLE: bias_NSS.double().numpy()}
    for module in encoding.children():
        if isinstance(module, ProjectedPositions):
            query_NRH, key_NRH = module(length)
            product = query_NRH[:, :length] @ key_NRH[:, :length].transpose(1, 2)
            parts[PROJECTED] = (product * encoding.score_scale).double().numpy()
        elif isinstance(module, RelativeBias):
            parts[RELATIVE] = module(length).double().numpy()
    return parts


def rank(singular_values: NDArray[numpy.float64]) -> int:
    """Return how many singular values are above rounding, as `numpy.linalg.matrix_rank` does."""
    epsilon = numpy.finfo(numpy.float64).eps
    least = singular_values[0] * len(singular_values) * epsilon
    return int((singular_values > least).sum())


def _head(parts: dict[str, NDArray[numpy.float64]]) -> Head:
    v = parts[WHOLE]
    return Head(
        correlations=v,
        pattern=head_pattern(v),
        row_mean=float(v[0, 1:].mean()),
        column_mean=float(v[1:, 0].mean()),
        words_mean=float(v[1:, 1:].mean()),
        to_cls=float(softmax(v[1:])[:, 0].mean()),
        singular_values={
            part: numpy.linalg.svd(matrix, compute_uv=False).astype(numpy.float64)
            for part, matrix in parts.items()
        },
    )
