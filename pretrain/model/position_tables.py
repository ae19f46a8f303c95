"""What position encodings learn: tables of positions and distances, and their projections.

Tables are named `position_embeddings` and `bucket_embeddings`: `PositionEncoding.tables` finds them
by these names. Exported models carry a copy of this file, so it imports nothing but torch, the
standard library and the files of positions. Shape letters as in positions.py.
"""

import math

import torch
from torch import Tensor, nn

from pretrain.model.position_encoding import PositionSettings, widened

BUCKETS = ("relative_buckets", "relative_max_distance")  # the settings of a table of distances


def refuse_longer_rows(sequence_length: int, num_positions: int) -> None:
    """Check that there is a position for each token of a row.

    Raises:
        ValueError: there are fewer.
    """
    if sequence_length > num_positions:
        raise ValueError(
            f"the rows have {sequence_length} tokens, but there are {num_positions} positions "
            "(model.max_sequence_length); shorten them"
        )


class Projected(nn.Module):
    """Vectors with a LayerNorm and a projection each for queries and keys, per head."""

    def add_projections(self, settings: PositionSettings) -> None:
        """Make norm and projections; after the table, in which order initial values are drawn."""
        self.num_heads, self.head_width = settings.num_heads, settings.head_width
        self.norm = nn.LayerNorm(settings.width, eps=settings.layer_norm_epsilon)
        has_bias = settings.position_projection_bias
        self.query = nn.Linear(settings.width, settings.width, bias=has_bias)
        self.key = nn.Linear(settings.width, settings.width, bias=has_bias)

    def project(self, rows_RD: Tensor) -> tuple[Tensor, Tensor]:
        """Return q_NRH and k_NRH of some vectors.

        They are projected in the type of autocast or of the weights, as words are, and returned in
        fp32, in which the gradients of all layers are summed.
        """
        rows_RD = self.norm(rows_RD)
        return self._heads(self.query(rows_RD)), self._heads(self.key(rows_RD))

    def _heads(self, projected_RD: Tensor) -> Tensor:
        heads_RNH = widened(projected_RD).view(-1, self.num_heads, self.head_width)
        return heads_RNH.transpose(0, 1)


class ProjectedPositions(Projected):
    """p U^Q and p U^K per head: the table, its LayerNorm and the projections (Sec. 3.3).

    The table is shared by the heads, U^Q and U^K by the layers. For BERT-Base that is 2 x 768 x 768
    = 1.18 M parameters more than BERT-A. `model.position_projection_bias` adds a bias to each, as
    the authors' code (github.com/guolinke/TUPE) does and the paper does not.
    """

    def __init__(self, settings: PositionSettings, *, num_extra_rows: int) -> None:
        super().__init__()
        self.num_extra_rows = num_extra_rows
        rows = settings.max_sequence_length + num_extra_rows
        self.position_embeddings = nn.Embedding(rows, settings.width)
        self.add_projections(settings)

    def forward(self, sequence_length: int) -> tuple[Tensor, Tensor]:
        """Return q_NRH and k_NRH: the first `sequence_length` rows, then the extra ones.

        Raises:
            ValueError: there are fewer positions.
        """
        num_positions = self.position_embeddings.num_embeddings - self.num_extra_rows
        refuse_longer_rows(sequence_length, num_positions)
        table = self.position_embeddings.weight
        extra = table[num_positions:]
        return self.project(torch.cat([table[:sequence_length], extra]))


class RelativeBias(nn.Module):
    """b_{j-i}: one scalar per head and distance bucket, shared by all layers (T5; TUPE Eq. 5).

    With num_extra_rows = 1 the table has the layout of the TUPE authors' code: the bucket that
    T5's function never returns (16 of 32) holds the scalar from [CLS], the last row the one to it.
    """

    def __init__(self, settings: PositionSettings, *, num_extra_rows: int = 0) -> None:
        super().__init__()
        self.num_buckets = settings.relative_buckets
        self.max_distance = settings.relative_max_distance
        self.bucket_embeddings = nn.Embedding(self.num_buckets + num_extra_rows, settings.num_heads)

    def forward(self, sequence_length: int) -> Tensor:
        """Return bias_NSS with bias[n, i, j] = b_{j-i} of head n, in fp32."""
        table = self.bucket_embeddings.weight.float()
        return bias_of_buckets(table, sequence_length, self.num_buckets, self.max_distance)


class ProjectedDistances(Projected):
    """b_{j-i} = (r_{j-i} F^Q)(r_{j-i} F^K)^T / sqrt(2d), with a learned r per distance bucket.

    TUPE Sec. 5 gives the product alone. Here r has a LayerNorm as p has, and the product the scale
    of the other two: b then has the variance of the untied correlation (p_i U^Q)(p_j U^K)^T /
    sqrt(2d). The heads share r, the layers all of it.
    """

    def __init__(self, settings: PositionSettings) -> None:
        super().__init__()
        self.max_distance = settings.relative_max_distance
        self.bucket_embeddings = nn.Embedding(settings.relative_buckets, settings.width)
        self.add_projections(settings)

    def forward(self, sequence_length: int) -> Tensor:
        """Return bias_NSS with bias[n, i, j] = b_{j-i} of head n, in fp32."""
        query_NRH, key_NRH = self.project(self.bucket_embeddings.weight)
        bias_RN = (query_NRH * key_NRH).sum(-1).t() * (2 * self.head_width) ** -0.5
        return bias_of_buckets(bias_RN, sequence_length, len(bias_RN), self.max_distance)


class RelativeKeys(nn.Module):
    """a_{clip(j-i, -t, t)} of one layer: a vector per distance, shared by the heads."""

    def __init__(self, settings: PositionSettings) -> None:
        super().__init__()
        self.clip = settings.relative_clip
        self.bucket_embeddings = nn.Embedding(2 * self.clip + 1, settings.head_width)

    def forward(self, sequence_length: int) -> Tensor:
        """Return key_RH of the distances that occur, up to min(t, S - 1), in fp32."""
        table = self.bucket_embeddings.weight
        reach = min(self.clip, sequence_length - 1)
        distances_R = torch.arange(-reach, reach + 1, device=table.device)
        # Gathered, not cut out: ZeRO-3 takes the table away when the module has run.
        return widened(table[distances_R + self.clip])


def bias_of_buckets(
    bias_RN: Tensor, sequence_length: int, num_buckets: int, max_distance: int
) -> Tensor:
    """Return bias_NSS, which gives each pair the numbers of its distance bucket."""
    distances_C = torch.arange(1 - sequence_length, sequence_length, device=bias_RN.device)
    bias_NC = bias_RN[relative_bucket(distances_C, num_buckets, max_distance)].t()
    # Row i of the matrix is a window of the 2S - 1 distances. With a strided view they are
    # gathered once instead of S x S times: 2.3 times faster forward and backward at S = 512.
    return bias_NC.unfold(-1, sequence_length, 1).flip(1)


def relative_bucket(distance: Tensor, num_buckets: int, max_distance: int) -> Tensor:
    """Return T5's bidirectional bucket of each distance j - i (Raffel et al. 2019, Sec. 2.1).

    Half of the buckets are for keys after the query (j > i). Within a half, the first half of
    the buckets hold one distance each, the others grow logarithmically up to `max_distance`; the
    last bucket holds all larger distances.
    """
    half = num_buckets // 2
    magnitude = distance.abs()
    bucket = magnitude.clamp(max=half // 2)
    # Whole numbers are compared: a logarithm in the graph of another program may be rounded to the
    # bucket below.
    for start in _far_buckets(half, max_distance):
        bucket = bucket + (magnitude >= start)
    return bucket + half * (distance > 0)


def _far_buckets(half: int, max_distance: int) -> list[int]:
    """Return the least distance of each bucket after the first that holds several."""
    exact = half // 2
    count = half - exact
    starts: list[int] = []
    distance = exact
    if max_distance <= exact:  # all further distances share the next bucket
        return starts
    for number in range(1, count):
        distance = max(distance, math.ceil(exact * (max_distance / exact) ** (number / count)) - 1)
        while distance**count * exact**number < max_distance**number * exact**count:
            distance += 1
        starts.append(distance)
    return starts


def reset_cls(bias_NSS: Tensor, from_cls_N: Tensor, to_cls_N: Tensor) -> Tensor:
    """Replace row 0 by theta_1 and the rest of column 0 by theta_2 (TUPE Eq. 9)."""
    num_heads, length, _ = bias_NSS.shape
    column_NS1 = to_cls_N.view(-1, 1, 1).expand(num_heads, length, 1)
    row_N1S = from_cls_N.view(-1, 1, 1).expand(num_heads, 1, length)
    with_column_NSS = torch.cat([column_NS1, bias_NSS[:, :, 1:]], dim=2)
    return torch.cat([row_N1S, with_column_NSS[:, 1:]], dim=1)
