"""Where word order enters the encoder. One class per encoding; adding one is editing this file.

An encoding may act at three places, and overrides the ones that it uses:

    add_to_embeddings   the input vectors                             x_BSD -> x_BSD
    attention_bias      added to the scaled scores of every layer     -> bias_NSS
    query_key_terms     added to the queries and keys of every layer  -> (q_NSH, k_NSH)

The last two depend on no input, so they are computed once per forward pass and shared by all
layers (TUPE Sec. 3.3), in fp32: the gradients of all layers are summed in the bias, and a bf16
sum over 12 layers loses accuracy. TUPE is Ke, He, Liu, "Rethinking Positional Encoding in
Language Pre-training", ICLR 2021. Positions count from 0 here, [CLS] is position 0; the paper
counts from 1.

Shape letters: B batch, S sequence, D model width, N heads, H head width, R rows of a table.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pretrain.config.errors import ConfigError, lookup
from pretrain.config.settings import ModelSettings


class FoldedBias(NamedTuple):
    """An attention bias as the factors of a product: scale x query_i key_j, and theta_2.

    The rows of position 0 are zero where [CLS] is reset; theta_2 is then added to the scores of
    key 0, except for the query [CLS] (TUPE Eq. 9). theta_1 has no influence and is left out.
    """

    query_NSH: Tensor
    key_NSH: Tensor
    to_cls_N: Tensor | None


class PositionEncoding(nn.Module):
    """What every encoding shares; by itself it gives no word order at all."""

    # A score is a sum of this many dot products of independent vectors of width H, so scaling by
    # 1/sqrt(score_terms * H) keeps its variance (TUPE Sec. 3.3, "Normalization and rescaling").
    score_terms = 1
    has_attention_bias = False
    has_projections = False  # of their own: U^Q and U^K
    is_foldable = False  # whether `folded_bias` gives the whole bias

    def __init__(self, model: ModelSettings) -> None:
        super().__init__()
        self.num_heads, self.head_width = model.num_heads, model.head_width
        self.score_scale = float((self.score_terms * model.head_width) ** -0.5)

    def add_to_embeddings(self, x_BSD: Tensor) -> Tensor:
        """Return the input vectors with positions mixed in; unchanged here."""
        return x_BSD

    def attention_bias(self, sequence_length: int) -> Tensor | None:
        """Return bias_NSS (fp32), or None where the encoding has none."""
        del sequence_length
        return None

    def folded_bias(self, sequence_length: int) -> FoldedBias | None:
        """Return the attention bias as factors (fp32); None where it is no such product."""
        del sequence_length
        return None

    def query_key_terms(self, sequence_length: int) -> tuple[Tensor, Tensor] | None:
        """Return what is added to queries and keys (q_NSH, k_NSH, fp32), or None."""
        del sequence_length
        return None

    def multiply_adds(self, sequence_length: int) -> int:
        """Return how many multiplications the shared terms cost in a forward pass."""
        del sequence_length
        return 0


class BertAbsolute(PositionEncoding):
    """BERT-A: one learned vector per position, added to the word embedding (Eq. 3)."""

    def __init__(self, model: ModelSettings) -> None:
        super().__init__(model)
        self.position_embeddings = nn.Embedding(model.max_sequence_length, model.width)

    def add_to_embeddings(self, x_BSD: Tensor) -> Tensor:
        """Add row s of the table to position s."""
        return x_BSD + self.position_embeddings.weight[: x_BSD.shape[1]]


class BertRelative(BertAbsolute):
    """BERT-R: BERT-A, and a learned scalar b_{j-i} per head and distance bucket (Eq. 5)."""

    has_attention_bias = True

    def __init__(self, model: ModelSettings) -> None:
        super().__init__(model)
        self.relative = RelativeBias(model)

    def attention_bias(self, sequence_length: int) -> Tensor:
        """Return b_{j-i} for every pair."""
        bias_NSS: Tensor = self.relative(sequence_length)
        return bias_NSS


class BertAbsoluteUntiedProjections(PositionEncoding):
    """BERT-A^d: positions with projections of their own, all four correlations kept (Sec. 4.3).

    alpha_ij = (x_i W^Q + p_i U^Q)(x_j W^K + p_j U^K)^T / sqrt(4d), in every layer; p is not added
    to the input. The paper does not say whether p is normalised here; it is, as in TUPE, with
    which this encoding is compared.
    """

    score_terms = 4
    has_projections = True

    def __init__(self, model: ModelSettings) -> None:
        super().__init__(model)
        self.projected = ProjectedPositions(model, num_extra_rows=0)

    def query_key_terms(self, sequence_length: int) -> tuple[Tensor, Tensor]:
        """Return p U^Q and p U^K."""
        query_NSH, key_NSH = self.projected(sequence_length)
        return query_NSH, key_NSH

    def multiply_adds(self, sequence_length: int) -> int:
        """Return the cost of the two projections."""
        return self.projected.multiply_adds(sequence_length)


class TupeAbsoluteTiedCls(PositionEncoding):
    """TUPE-A^tie-cls: untied positions, [CLS] treated like any word (Eq. 7)."""

    score_terms = 2
    has_attention_bias = True
    has_projections = True
    is_foldable = True
    num_thetas = 0

    def __init__(self, model: ModelSettings) -> None:
        super().__init__(model)
        self.projected = ProjectedPositions(model, num_extra_rows=self.num_thetas)

    def attention_bias(self, sequence_length: int) -> Tensor:
        """Return (p_i U^Q)(p_j U^K)^T / sqrt(2d)."""
        query_NSH, key_NSH = self.projected(sequence_length)
        return _widened(query_NSH * self.score_scale @ key_NSH.transpose(1, 2))

    def folded_bias(self, sequence_length: int) -> FoldedBias | None:
        """Return p U^Q and p U^K."""
        query_NSH, key_NSH = self.projected(sequence_length)
        return FoldedBias(query_NSH, key_NSH, to_cls_N=None)

    def multiply_adds(self, sequence_length: int) -> int:
        """Return the cost of the two projections and of their product."""
        product = sequence_length * sequence_length * self.num_heads * self.head_width
        return self.projected.multiply_adds(sequence_length) + product


class TupeAbsolute(TupeAbsoluteTiedCls):
    """TUPE-A: untied positions, and [CLS] untied from them (Eq. 7, 9, 10).

    theta_1 and theta_2 are (p_theta U^Q)(p_theta U^K)^T / sqrt(2d) (Sec. 3.3); p_theta_1 and
    p_theta_2 are the last two rows of the position table. theta_1 is the same for every key of
    the query [CLS], and softmax ignores a constant: its gradient is exactly zero in theory.
    """

    num_thetas = 2

    def attention_bias(self, sequence_length: int) -> Tensor:
        """Return reset_theta((p_i U^Q)(p_j U^K)^T / sqrt(2d), i, j)."""
        words_NSS, from_cls_N, to_cls_N = self.words_and_thetas(sequence_length)
        return reset_cls(words_NSS, from_cls_N, to_cls_N)

    def folded_bias(self, sequence_length: int) -> FoldedBias | None:
        """Return p U^Q and p U^K without [CLS], and theta_2."""
        query_NRH, key_NRH = self.projected(sequence_length)
        to_cls_N = (query_NRH[:, -1] * key_NRH[:, -1]).sum(-1) * self.score_scale
        words_query_NSH, words_key_NSH = (
            F.pad(rows_NRH[:, 1:-2], (0, 0, 1, 0)) for rows_NRH in (query_NRH, key_NRH)
        )
        return FoldedBias(words_query_NSH, words_key_NSH, to_cls_N)

    def words_and_thetas(self, sequence_length: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the untied correlations before the reset, theta_1 and theta_2 (N each)."""
        query_NRH, key_NRH = self.projected(sequence_length)
        query_NRH = query_NRH * self.score_scale  # far fewer numbers than the scores
        words_NSS: Tensor = query_NRH[:, :-2] @ key_NRH[:, :-2].transpose(1, 2)
        thetas_N2 = (query_NRH[:, -2:] * key_NRH[:, -2:]).sum(-1)
        return words_NSS, thetas_N2[:, 0], thetas_N2[:, 1]


class TupeRelative(TupeAbsolute):
    """TUPE-R: TUPE-A with b_{j-i} in the positional correlation (Eq. 8, 9, 11).

    cls_reset = "paper" resets the sum of both parts. "reference" is the authors' code
    (github.com/guolinke/TUPE): each part is reset by itself, so [CLS] gets theta plus a scalar of
    the relative table. The functions that the two can represent are the same.
    """

    is_foldable = False

    def __init__(self, model: ModelSettings) -> None:
        super().__init__(model)
        self.reset_separately = model.cls_reset == "reference"
        self.relative = RelativeBias(model, num_extra_rows=int(self.reset_separately))

    def attention_bias(self, sequence_length: int) -> Tensor:
        """Return reset_theta((p_i U^Q)(p_j U^K)^T / sqrt(2d) + b_{j-i}, i, j)."""
        words_NSS, from_cls_N, to_cls_N = self.words_and_thetas(sequence_length)
        if self.reset_separately:
            from_scalar_N, to_scalar_N = self.relative.cls_scalars()
            from_cls_N, to_cls_N = from_cls_N + from_scalar_N, to_cls_N + to_scalar_N
        return reset_cls(words_NSS + self.relative(sequence_length), from_cls_N, to_cls_N)

    def folded_bias(self, sequence_length: int) -> FoldedBias | None:
        """Return None: b_{j-i} is no product of few factors."""
        del sequence_length
        return None


class ProjectedPositions(nn.Module):
    """p U^Q and p U^K per head: the table, its LayerNorm and the projections (Sec. 3.3).

    The table is shared by the heads, U^Q and U^K by the layers. For BERT-Base that is 2 x 768 x 768
    = 1.18 M parameters more than BERT-A. `model.position_projection_bias` adds a bias to each, as
    the authors' code (github.com/guolinke/TUPE) does and the paper does not.
    """

    def __init__(self, model: ModelSettings, *, num_extra_rows: int) -> None:
        super().__init__()
        self.num_heads, self.head_width = model.num_heads, model.head_width
        self.num_extra_rows = num_extra_rows
        rows = model.max_sequence_length + num_extra_rows
        self.position_embeddings = nn.Embedding(rows, model.width)
        self.norm = nn.LayerNorm(model.width, eps=model.layer_norm_epsilon)
        has_bias = model.position_projection_bias
        self.query = nn.Linear(model.width, model.width, bias=has_bias)
        self.key = nn.Linear(model.width, model.width, bias=has_bias)

    def forward(self, sequence_length: int) -> tuple[Tensor, Tensor]:
        """Return q_NRH and k_NRH: the first `sequence_length` rows, then the extra ones.

        They are projected in the type in which the words are, that of autocast or of the weights,
        and handed on in fp32, in which the gradients of all layers are summed.
        """
        table = self.position_embeddings.weight
        extra = table[len(table) - self.num_extra_rows :]
        p_RD = self.norm(torch.cat([table[:sequence_length], extra]))
        return self._heads(self.query(p_RD)), self._heads(self.key(p_RD))

    def multiply_adds(self, sequence_length: int) -> int:
        """Return the cost of both projections."""
        return 2 * (sequence_length + self.num_extra_rows) * self.query.weight.numel()

    def _heads(self, projected_RD: Tensor) -> Tensor:
        heads_RNH = _widened(projected_RD).view(-1, self.num_heads, self.head_width)
        return heads_RNH.transpose(0, 1)


class RelativeBias(nn.Module):
    """b_{j-i}: one scalar per head and distance bucket, shared by all layers (T5; TUPE Eq. 5).

    With num_extra_rows = 1 the table has the layout of the TUPE authors' code: the bucket that
    T5's function never returns (16 of 32) holds the scalar from [CLS], the last row the one to it.
    """

    def __init__(self, model: ModelSettings, *, num_extra_rows: int = 0) -> None:
        super().__init__()
        self.num_buckets, self.max_distance = model.relative_buckets, model.relative_max_distance
        self.bucket_embeddings = nn.Embedding(self.num_buckets + num_extra_rows, model.num_heads)

    def forward(self, sequence_length: int) -> Tensor:
        """Return bias_NSS with bias[n, i, j] = b_{j-i} of head n, in fp32."""
        table = self.bucket_embeddings.weight
        distances_R = torch.arange(1 - sequence_length, sequence_length, device=table.device)
        buckets_R = relative_bucket(distances_R, self.num_buckets, self.max_distance)
        bias_NR = table.float()[buckets_R].t()
        # Row i of the matrix is a window of the 2S - 1 distances. A strided view gathers them
        # once instead of S x S times: 2.3 times faster forward and backward at S = 512.
        return bias_NR.unfold(-1, sequence_length, 1).flip(1)

    def cls_scalars(self) -> tuple[Tensor, Tensor]:
        """Return the scalars from and to [CLS] of the authors' layout (N each)."""
        table = self.bucket_embeddings.weight.float()
        return table[self.num_buckets // 2], table[self.num_buckets]


def relative_bucket(distance: Tensor, num_buckets: int, max_distance: int) -> Tensor:
    """Return T5's bidirectional bucket of each distance j - i (Raffel et al. 2019, Sec. 2.1).

    Half of the buckets are for keys behind the query (j > i). Within a half, the first half of
    the buckets hold one distance each, the others grow logarithmically up to `max_distance`; the
    last bucket takes everything farther.
    """
    half = num_buckets // 2
    exact = half // 2
    magnitude = distance.abs()
    growth = torch.log(magnitude.clamp(min=1).double() / exact) / math.log(max_distance / exact)
    far = (exact + (growth * (half - exact)).long()).clamp(max=half - 1)
    return torch.where(magnitude < exact, magnitude, far) + half * (distance > 0)


def reset_cls(bias_NSS: Tensor, from_cls_N: Tensor, to_cls_N: Tensor) -> Tensor:
    """Replace row 0 by theta_1 and the rest of column 0 by theta_2 (TUPE Eq. 9)."""
    num_heads, length, _ = bias_NSS.shape
    column_NS1 = to_cls_N.view(-1, 1, 1).expand(num_heads, length, 1)
    row_N1S = from_cls_N.view(-1, 1, 1).expand(num_heads, 1, length)
    with_column_NSS = torch.cat([column_NS1, bias_NSS[:, :, 1:]], dim=2)
    return torch.cat([row_N1S, with_column_NSS[:, 1:]], dim=1)


def _widened(x: Tensor) -> Tensor:
    """Return it in fp32 at least."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


POSITION_ENCODINGS: dict[str, type[PositionEncoding]] = {
    "bert-a": BertAbsolute,
    "bert-r": BertRelative,
    "bert-ad": BertAbsoluteUntiedProjections,
    "tupe-a": TupeAbsolute,
    "tupe-r": TupeRelative,
    "tupe-a-tie-cls": TupeAbsoluteTiedCls,
}


def build_position_encoding(model: ModelSettings) -> PositionEncoding:
    """Build the encoding that `model.positions` names.

    Raises:
        ConfigError: there is no such encoding, or a setting has no effect in it.
    """
    encoding = lookup(POSITION_ENCODINGS, model.positions, setting="model.positions")
    if model.cls_reset == "reference" and encoding is not TupeRelative:
        raise ConfigError(
            f"model.cls_reset='reference' differs from 'paper' only in tupe-r, not in "
            f"{model.positions}; remove it"
        )
    if model.position_projection_bias and not encoding.has_projections:
        projecting = [name for name, kind in POSITION_ENCODINGS.items() if kind.has_projections]
        raise ConfigError(
            f"model.position_projection_bias=True is without effect with model.positions="
            f"{model.positions!r}, which projects no positions ({', '.join(projecting)} do); "
            "remove it"
        )
    return encoding(model)


class PositionTerms(NamedTuple):
    """What one forward pass shares among its layers; see `PositionEncoding`."""

    bias_NSS: Tensor | None = None
    query_key_NSH: tuple[Tensor, Tensor] | None = None
    folded: FoldedBias | None = None  # instead of bias_NSS, for the backend of that name
