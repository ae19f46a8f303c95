"""Position encodings: one class each. A new one is a class and a line of POSITION_ENCODINGS.

An encoding may act at four places, and overrides the hooks that it uses:

    add_to_embeddings   the input vectors                             x_BSD -> x_BSD
    attention_bias      added to the scaled scores of every layer     -> bias_NSS
    query_key_terms     added to the queries and keys of every layer  -> (q_NSH, k_NSH)
    rotation            of the queries and keys of every layer        -> Rotation

The last three depend on no input, so they are computed once per forward pass and shared by all
layers (TUPE Sec. 3.3), in fp32: the gradients of all layers are summed in the bias, and a bf16
sum over 12 layers loses accuracy. TUPE is Ke, He, Liu, "Rethinking Positional Encoding in
Language Pre-training", ICLR 2021. Positions count from 0 here, [CLS] is position 0; the paper
counts from 1.

Exported models carry a copy of this file, so it imports nothing but torch and the standard library
and stays one file.

Shape letters: B batch, S sequence, D model width, N heads, H head width, R rows of a table.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROTARY_BASE = 10_000.0  # RoFormer Sec. 3.2.2

BERT = 'Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", NAACL 2019'
TUPE = 'Ke, He, Liu, "Rethinking Positional Encoding in Language Pre-training", ICLR 2021'
ROFORMER = 'Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021'


class PositionSettings(NamedTuple):
    """The part of a model's settings that encodings read; the names are those of the settings."""

    width: int
    num_heads: int
    max_sequence_length: int
    cls_reset: str
    position_projection_bias: bool
    layer_norm_epsilon: float
    relative_buckets: int
    relative_max_distance: int

    @property
    def head_width(self) -> int:
        """Return the width of one attention head."""
        return self.width // self.num_heads


class FoldedBias(NamedTuple):
    """An attention bias as the factors of a product: scale x query_i key_j, and theta_2.

    The rows of position 0 are zero where [CLS] is reset; theta_2 is then added to the scores of
    key 0, except for the query [CLS] (TUPE Eq. 9). theta_1 has no influence and is left out.
    """

    query_NSH: Tensor
    key_NSH: Tensor
    to_cls_N: Tensor | None


class Rotation(NamedTuple):
    """Angles by which pairs of query and key dimensions are rotated; C = H / 2, one per pair."""

    cosine_SC: Tensor
    sine_SC: Tensor


class PositionTerms(NamedTuple):
    """The terms of one forward pass, which all layers share; see `PositionEncoding`."""

    bias_NSS: Tensor | None = None
    query_key_NSH: tuple[Tensor, Tensor] | None = None
    rotation: Rotation | None = None
    folded: FoldedBias | None = None  # instead of bias_NSS, for the backend of that name


class PositionEncoding(nn.Module):
    """The base of all encodings; used alone, it adds no word order."""

    description: str  # a phrase for model cards
    source: str  # the paper that describes it

    # A score is a sum of this many dot products of independent vectors of width H, so scaling by
    # 1/sqrt(score_terms * H) keeps its variance (TUPE Sec. 3.3, "Normalization and rescaling").
    score_terms = 1
    has_attention_bias = False
    has_projections = False  # of positions: U^Q and U^K
    has_reference_reset = False  # whether cls_reset = "reference" differs from "paper"
    is_foldable = False  # whether `folded_bias` is the whole bias

    def __init__(self, settings: PositionSettings) -> None:
        super().__init__()
        self.num_heads, self.head_width = settings.num_heads, settings.head_width
        self.score_scale = float((self.score_terms * settings.head_width) ** -0.5)

    @classmethod
    def obstacle(cls, settings: PositionSettings) -> str | None:
        """Return why the encoding cannot be built with these settings, or None."""
        del settings
        return None

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
        """Return the terms added to queries and keys (q_NSH, k_NSH, fp32), or None."""
        del sequence_length
        return None

    def rotation(self, sequence_length: int, device: torch.device | str) -> Rotation | None:
        """Return how queries and keys are rotated (fp32), or None."""
        del sequence_length, device
        return None

    def terms(
        self, sequence_length: int, *, device: torch.device | str, folded: bool = False
    ) -> PositionTerms:
        """Compute the terms of a forward pass, once for all layers.

        Args:
            sequence_length: of the rows.
            device: of the queries.
            folded: give the bias as factors, for the backend "folded".
        """
        return PositionTerms(
            bias_NSS=None if folded else self.attention_bias(sequence_length),
            query_key_NSH=self.query_key_terms(sequence_length),
            rotation=self.rotation(sequence_length, device),
            folded=self.folded_bias(sequence_length) if folded else None,
        )

    def multiply_adds(self, sequence_length: int) -> int:
        """Return the multiply-adds of the shared terms in a forward pass."""
        del sequence_length
        return 0


def transform_query_key(
    q_BNSH: Tensor, k_BNSH: Tensor, terms: PositionTerms
) -> tuple[Tensor, Tensor]:
    """Apply the terms that act on queries and keys: first those that are added, then the rotation.

    The rotation is computed in fp32 at least: bf16 would round its angles to 2^-8.
    """
    if terms.query_key_NSH is not None:
        q_NSH, k_NSH = terms.query_key_NSH
        q_BNSH, k_BNSH = q_BNSH + q_NSH.to(q_BNSH.dtype), k_BNSH + k_NSH.to(k_BNSH.dtype)
    if terms.rotation is not None:
        q_BNSH, k_BNSH = _rotated(q_BNSH, terms.rotation), _rotated(k_BNSH, terms.rotation)
    return q_BNSH, k_BNSH


def _rotated(x_BNSH: Tensor, rotation: Rotation) -> Tensor:
    first_BNSC, second_BNSC = _widened(x_BNSH).chunk(2, dim=-1)
    cosine_SC, sine_SC = rotation
    rotated_BNSH = torch.cat(
        [
            first_BNSC * cosine_SC - second_BNSC * sine_SC,
            second_BNSC * cosine_SC + first_BNSC * sine_SC,
        ],
        dim=-1,
    )
    return rotated_BNSH.to(x_BNSH.dtype)


class BertAbsolute(PositionEncoding):
    """BERT-A: one learned vector per position, added to the word embedding (Eq. 3)."""

    description = "absolute positions (BERT)"
    source = BERT

    def __init__(self, settings: PositionSettings) -> None:
        super().__init__(settings)
        self.position_embeddings = nn.Embedding(settings.max_sequence_length, settings.width)

    def add_to_embeddings(self, x_BSD: Tensor) -> Tensor:
        """Add row s of the table to position s."""
        return x_BSD + self.position_embeddings.weight[: x_BSD.shape[1]]


class BertRelative(BertAbsolute):
    """BERT-R: BERT-A, and a learned scalar b_{j-i} per head and distance bucket (Eq. 5)."""

    description = "absolute and relative positions (BERT-R, TUPE Eq. 5)"
    source = TUPE
    has_attention_bias = True

    def __init__(self, settings: PositionSettings) -> None:
        super().__init__(settings)
        self.relative = RelativeBias(settings)

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

    description = "absolute positions with projections of their own (BERT-A^d, TUPE Sec. 4.3)"
    source = TUPE
    score_terms = 4
    has_projections = True

    def __init__(self, settings: PositionSettings) -> None:
        super().__init__(settings)
        self.projected = ProjectedPositions(settings, num_extra_rows=0)

    def query_key_terms(self, sequence_length: int) -> tuple[Tensor, Tensor]:
        """Return p U^Q and p U^K."""
        query_NSH, key_NSH = self.projected(sequence_length)
        return query_NSH, key_NSH

    def multiply_adds(self, sequence_length: int) -> int:
        """Return the multiply-adds of the two projections."""
        return self.projected.multiply_adds(sequence_length)


class TupeAbsoluteTiedCls(PositionEncoding):
    """TUPE-A^tie-cls: untied positions, [CLS] treated like any word (Eq. 7)."""

    description = "untied absolute positions, [CLS] tied to them (TUPE Eq. 7)"
    source = TUPE
    score_terms = 2
    has_attention_bias = True
    has_projections = True
    is_foldable = True
    num_thetas = 0

    def __init__(self, settings: PositionSettings) -> None:
        super().__init__(settings)
        self.projected = ProjectedPositions(settings, num_extra_rows=self.num_thetas)

    def attention_bias(self, sequence_length: int) -> Tensor:
        """Return (p_i U^Q)(p_j U^K)^T / sqrt(2d)."""
        query_NSH, key_NSH = self.projected(sequence_length)
        return _widened(query_NSH * self.score_scale @ key_NSH.transpose(1, 2))

    def folded_bias(self, sequence_length: int) -> FoldedBias | None:
        """Return p U^Q and p U^K."""
        query_NSH, key_NSH = self.projected(sequence_length)
        return FoldedBias(query_NSH, key_NSH, to_cls_N=None)

    def multiply_adds(self, sequence_length: int) -> int:
        """Return the multiply-adds of the two projections and of their product."""
        product = sequence_length * sequence_length * self.num_heads * self.head_width
        return self.projected.multiply_adds(sequence_length) + product


class TupeAbsolute(TupeAbsoluteTiedCls):
    """TUPE-A: untied positions, and [CLS] untied from them (Eq. 7, 9, 10).

    theta_1 and theta_2 are (p_theta U^Q)(p_theta U^K)^T / sqrt(2d) (Sec. 3.3); p_theta_1 and
    p_theta_2 are the last two rows of the position table. theta_1 is the same for every key of
    the query [CLS], and softmax ignores a constant: its gradient is exactly zero in theory.
    """

    description = "untied absolute positions (TUPE-A, Eq. 10)"
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

    description = "untied absolute and relative positions (TUPE-R, Eq. 11)"
    has_reference_reset = True
    is_foldable = False

    def __init__(self, settings: PositionSettings) -> None:
        super().__init__(settings)
        self.reset_separately = settings.cls_reset == "reference"
        self.relative = RelativeBias(settings, num_extra_rows=int(self.reset_separately))

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


class Rotary(PositionEncoding):
    """RoPE: queries and keys are rotated by angles that grow with the position (RoFormer Eq. 14).

    Pair c of a head turns by s ROTARY_BASE^(-2c/H) at position s, so that positions enter a score
    by the distance j - i alone. There are no parameters. The paper pairs neighbouring dimensions,
    2c and 2c + 1 (Eq. 15); here c is paired with c + H/2, as in transformers' rotary code. The two
    differ by a permutation of the rows of W^Q and W^K.
    """

    description = "rotary positions (RoPE)"
    source = ROFORMER

    @classmethod
    def obstacle(cls, settings: PositionSettings) -> str | None:
        """Return why pairs cannot be formed, or None."""
        if settings.head_width % 2 == 0:
            return None
        return (
            f"model.width={settings.width} and model.num_heads={settings.num_heads} give heads of "
            f"width {settings.head_width}, and dimensions are rotated in pairs; choose a number of "
            "heads that gives an even width"
        )

    def rotation(self, sequence_length: int, device: torch.device | str) -> Rotation:
        """Return cosine and sine of s ROTARY_BASE^(-2c/H)."""
        # fp64: in fp32 the angle of position 2^18 would be wrong by 0.015.
        position_S = torch.arange(sequence_length, device=device, dtype=torch.float64)
        dimension_C = torch.arange(0, self.head_width, 2, device=device, dtype=torch.float64)
        angle_SC = position_S[:, None] * ROTARY_BASE ** (-dimension_C / self.head_width)
        return Rotation(angle_SC.cos().float(), angle_SC.sin().float())


class ProjectedPositions(nn.Module):
    """p U^Q and p U^K per head: the table, its LayerNorm and the projections (Sec. 3.3).

    The table is shared by the heads, U^Q and U^K by the layers. For BERT-Base that is 2 x 768 x 768
    = 1.18 M parameters more than BERT-A. `model.position_projection_bias` adds a bias to each, as
    the authors' code (github.com/guolinke/TUPE) does and the paper does not.
    """

    def __init__(self, settings: PositionSettings, *, num_extra_rows: int) -> None:
        super().__init__()
        self.num_heads, self.head_width = settings.num_heads, settings.head_width
        self.num_extra_rows = num_extra_rows
        rows = settings.max_sequence_length + num_extra_rows
        self.position_embeddings = nn.Embedding(rows, settings.width)
        self.norm = nn.LayerNorm(settings.width, eps=settings.layer_norm_epsilon)
        has_bias = settings.position_projection_bias
        self.query = nn.Linear(settings.width, settings.width, bias=has_bias)
        self.key = nn.Linear(settings.width, settings.width, bias=has_bias)

    def forward(self, sequence_length: int) -> tuple[Tensor, Tensor]:
        """Return q_NRH and k_NRH: the first `sequence_length` rows, then the extra ones.

        They are projected in the type of autocast or of the weights, as words are, and returned in
        fp32, in which the gradients of all layers are summed.
        """
        table = self.position_embeddings.weight
        extra = table[len(table) - self.num_extra_rows :]
        p_RD = self.norm(torch.cat([table[:sequence_length], extra]))
        return self._heads(self.query(p_RD)), self._heads(self.key(p_RD))

    def multiply_adds(self, sequence_length: int) -> int:
        """Return the multiply-adds of both projections."""
        return 2 * (sequence_length + self.num_extra_rows) * self.query.weight.numel()

    def _heads(self, projected_RD: Tensor) -> Tensor:
        heads_RNH = _widened(projected_RD).view(-1, self.num_heads, self.head_width)
        return heads_RNH.transpose(0, 1)


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
        table = self.bucket_embeddings.weight
        distances_R = torch.arange(1 - sequence_length, sequence_length, device=table.device)
        buckets_R = relative_bucket(distances_R, self.num_buckets, self.max_distance)
        bias_NR = table.float()[buckets_R].t()
        # Row i of the matrix is a window of the 2S - 1 distances. With a strided view they are
        # gathered once instead of S x S times: 2.3 times faster forward and backward at S = 512.
        return bias_NR.unfold(-1, sequence_length, 1).flip(1)

    def cls_scalars(self) -> tuple[Tensor, Tensor]:
        """Return the scalars from and to [CLS] of the authors' layout (N each)."""
        table = self.bucket_embeddings.weight.float()
        return table[self.num_buckets // 2], table[self.num_buckets]


def relative_bucket(distance: Tensor, num_buckets: int, max_distance: int) -> Tensor:
    """Return T5's bidirectional bucket of each distance j - i (Raffel et al. 2019, Sec. 2.1).

    Half of the buckets are for keys after the query (j > i). Within a half, the first half of
    the buckets hold one distance each, the others grow logarithmically up to `max_distance`; the
    last bucket holds all larger distances.
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
    """Return x in fp32 at least."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


POSITION_ENCODINGS: dict[str, type[PositionEncoding]] = {
    "bert-a": BertAbsolute,
    "bert-r": BertRelative,
    "bert-ad": BertAbsoluteUntiedProjections,
    "tupe-a": TupeAbsolute,
    "tupe-r": TupeRelative,
    "tupe-a-tie-cls": TupeAbsoluteTiedCls,
    "rope": Rotary,
}
