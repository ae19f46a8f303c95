"""Position encodings: one class each. A new one is a class and a line of POSITION_ENCODINGS.

Here are BERT's and those of the TUPE paper (Ke, He, Liu, "Rethinking Positional Encoding in
Language Pre-training", ICLR 2021), to which the numbers of equations and sections belong; others
are in position_baselines.py. Positions count from 0 here, [CLS] is position 0; the paper counts
from 1.

Exported models carry a copy of these files, so they import nothing but torch, the standard library
and one another.

Shape letters: B batch, S sequence, D model width, N heads, H head width, R rows of a table.
"""

from torch import Tensor, nn

from pretrain.model.position_baselines import LinearBiases, NoPositions, RelativeOnly, Rotary
from pretrain.model.position_encoding import PositionEncoding, PositionSettings, widened
from pretrain.model.position_tables import (
    BUCKETS,
    ProjectedDistances,
    ProjectedPositions,
    RelativeBias,
    RelativeKeys,
    refuse_longer_rows,
    reset_cls,
)

__all__ = ["POSITION_ENCODINGS", "PositionEncoding"]

BERT = 'Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", NAACL 2019'
SHAW = 'Shaw, Uszkoreit, Vaswani, "Self-Attention with Relative Position Representations", 2018'
TUPE = 'Ke, He, Liu, "Rethinking Positional Encoding in Language Pre-training", ICLR 2021'


class BertAbsolute(PositionEncoding):
    """BERT-A: one learned vector per position, added to the word embedding (Eq. 3)."""

    description = "absolute positions (BERT)"
    source = BERT

    def __init__(self, settings: PositionSettings) -> None:
        super().__init__(settings)
        self.position_embeddings = nn.Embedding(settings.max_sequence_length, settings.width)

    def add_to_embeddings(self, x_BSD: Tensor) -> Tensor:
        """Add row s of the table to position s.

        Raises:
            ValueError: there are fewer rows.
        """
        length = x_BSD.shape[1]
        refuse_longer_rows(length, self.position_embeddings.num_embeddings)
        return x_BSD + self.position_embeddings.weight[:length]


class BertRelative(RelativeOnly, BertAbsolute):
    """BERT-R: BERT-A, and a learned scalar b_{j-i} per head and distance bucket (Eq. 5)."""

    description = "absolute and relative positions (BERT-R, TUPE Eq. 5)"
    source = TUPE


class BertAbsoluteUntiedProjections(PositionEncoding):
    """BERT-A^d: positions with projections of their own, all four correlations kept (Sec. 4.3).

    alpha_ij = (x_i W^Q + p_i U^Q)(x_j W^K + p_j U^K)^T / sqrt(4d), in every layer; p is not added
    to the input. The paper does not say whether p is normalised here; it is, as in TUPE, with
    which this encoding is compared.
    """

    description = "absolute positions with projections of their own (BERT-A^d, TUPE Sec. 4.3)"
    source = TUPE
    own_settings = ("position_projection_bias",)
    score_terms = 4

    def __init__(self, settings: PositionSettings) -> None:
        super().__init__(settings)
        self.projected = ProjectedPositions(settings, num_extra_rows=0)

    def query_key_terms(self, sequence_length: int) -> tuple[Tensor, Tensor]:
        """Return p U^Q and p U^K."""
        query_NSH, key_NSH = self.projected(sequence_length)
        return query_NSH, key_NSH


class TupeAbsoluteTiedCls(PositionEncoding):
    """TUPE-A^tie-cls: untied positions, [CLS] treated like any word (Eq. 7)."""

    description = "untied absolute positions, [CLS] tied to them (TUPE Eq. 7)"
    source = TUPE
    own_settings: tuple[str, ...] = ("position_projection_bias",)
    score_terms = 2
    num_thetas = 0

    def __init__(self, settings: PositionSettings) -> None:
        super().__init__(settings)
        self.projected = ProjectedPositions(settings, num_extra_rows=self.num_thetas)

    def attention_bias(self, sequence_length: int) -> Tensor:
        """Return (p_i U^Q)(p_j U^K)^T / sqrt(2d)."""
        query_NSH, key_NSH = self.projected(sequence_length)
        return widened(query_NSH * self.score_scale @ key_NSH.transpose(1, 2))


class TupeRelativeTiedCls(TupeAbsoluteTiedCls):
    """TUPE-R^tie-cls: untied positions and b_{j-i}, [CLS] treated like any word (Eq. 8)."""

    description = "untied absolute and relative positions, [CLS] tied to them (TUPE Eq. 8)"
    own_settings = (*TupeAbsoluteTiedCls.own_settings, *BUCKETS)

    def __init__(self, settings: PositionSettings) -> None:
        super().__init__(settings)
        self.relative = RelativeBias(settings)

    def attention_bias(self, sequence_length: int) -> Tensor:
        """Return (p_i U^Q)(p_j U^K)^T / sqrt(2d) + b_{j-i}."""
        bias_NSS: Tensor = super().attention_bias(sequence_length) + self.relative(sequence_length)
        return bias_NSS


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
    own_settings = ("cls_reset", *TupeAbsolute.own_settings, *BUCKETS)

    def __init__(self, settings: PositionSettings) -> None:
        super().__init__(settings)
        self.reset_separately = settings.cls_reset == "reference"
        self.relative = RelativeBias(settings, num_extra_rows=int(self.reset_separately))

    def attention_bias(self, sequence_length: int) -> Tensor:
        """Return reset_theta((p_i U^Q)(p_j U^K)^T / sqrt(2d) + b_{j-i}, i, j)."""
        words_NSS, from_cls_N, to_cls_N = self.words_and_thetas(sequence_length)
        if self.reset_separately:
            table = self.relative.bucket_embeddings.weight.float()  # the authors' layout
            from_cls_N = from_cls_N + table[self.relative.num_buckets // 2]
            to_cls_N = to_cls_N + table[self.relative.num_buckets]
        return reset_cls(words_NSS + self.relative(sequence_length), from_cls_N, to_cls_N)


class TupeRelativeParametric(TupeAbsolute):
    """TUPE-R with b_{j-i} = (r_{j-i} F^Q)(r_{j-i} F^K)^T / sqrt(2d), "marginal" (Sec. 5).

    See `ProjectedDistances`. Row and column of [CLS] are those of TUPE-A, as in Eq. 11.
    """

    description = "untied absolute positions and projected relative ones (TUPE, Sec. 5)"
    own_settings = (*TupeAbsolute.own_settings, *BUCKETS)

    def __init__(self, settings: PositionSettings) -> None:
        super().__init__(settings)
        self.relative = ProjectedDistances(settings)

    def attention_bias(self, sequence_length: int) -> Tensor:
        """Return reset_theta((p_i U^Q)(p_j U^K)^T / sqrt(2d) + b_{j-i}, i, j)."""
        words_NSS, from_cls_N, to_cls_N = self.words_and_thetas(sequence_length)
        return reset_cls(words_NSS + self.relative(sequence_length), from_cls_N, to_cls_N)


class TupeAbsoluteTable(PositionEncoding):
    """TUPE-A with a free table instead of (p_i U^Q)(p_j U^K)^T, which learns slowly (Sec. 5).

    alpha_ij = (x_i W^Q)(x_j W^K)^T / sqrt(2d) + reset_theta(A[head, i, j], i, j). The paper
    calls it "non-parametric" and gives no formula. A is not scaled, as b_{j-i} is not. theta_1 and
    theta_2 are A[head, 0, 0] and A[head, 1, 0], two of the entries that the reset replaces. For
    BERT-Base A has 12 x 512 x 512 = 3.1 M parameters.
    """

    description = "a free table of untied absolute positions (TUPE, Sec. 5)"
    source = TUPE
    score_terms = 2

    def __init__(self, settings: PositionSettings) -> None:
        super().__init__(settings)
        rows, columns = settings.num_heads, settings.max_sequence_length
        self.position_embeddings = nn.Embedding(rows * columns, columns)

    def attention_bias(self, sequence_length: int) -> Tensor:
        """Return reset_theta(A[head, i, j], i, j).

        Raises:
            ValueError: the table is for shorter rows.
        """
        refuse_longer_rows(sequence_length, self.position_embeddings.embedding_dim)
        table = widened(self.position_embeddings.weight)
        table_NRR = table.view(self.num_heads, -1, table.shape[1])
        words_NSS = table_NRR[:, :sequence_length, :sequence_length]
        return reset_cls(words_NSS, table_NRR[:, 0, 0], table_NRR[:, 1, 0])


class RelativeQueryKey(PositionEncoding):
    """Shaw et al. 2018: a vector a^l_{clip(j-i,-t,t)} of each layer is added to the keys (Eq. 4).

    alpha_ij = (x_i W^Q)(x_j W^K + a^l_{clip(j-i,-t,t)})^T / sqrt(d), without absolute positions; t
    is `model.relative_clip`, 16 in the base model of Shaw et al. The heads share the table. Their
    vectors for the values, "which did not improve much" (TUPE, footnote 2), are left out. [CLS] is
    treated like any word.
    """

    description = "relative positions as vectors added to the keys (Shaw et al., TUPE Eq. 4)"
    source = SHAW
    own_settings = ("relative_clip",)

    def __init__(self, settings: PositionSettings) -> None:
        super().__init__(settings)
        self.layers = nn.ModuleList(RelativeKeys(settings) for _ in range(settings.num_layers))

    def relative_keys(self, layer: int, sequence_length: int) -> Tensor:
        """Return a^l of the distances that occur."""
        key_RH: Tensor = self.layers[layer](sequence_length)
        return key_RH


POSITION_ENCODINGS: dict[str, type[PositionEncoding]] = {
    "bert-a": BertAbsolute,
    "bert-r": BertRelative,
    "bert-ad": BertAbsoluteUntiedProjections,
    "tupe-a": TupeAbsolute,
    "tupe-r": TupeRelative,
    "tupe-a-tie-cls": TupeAbsoluteTiedCls,
    "tupe-r-tie-cls": TupeRelativeTiedCls,
    "tupe-a-table": TupeAbsoluteTable,
    "tupe-r-parametric": TupeRelativeParametric,
    "shaw": RelativeQueryKey,
    "nope": NoPositions,
    "t5": RelativeOnly,
    "alibi": LinearBiases,
    "rope": Rotary,
}
