"""Position encodings that TUPE is compared with: none, distances alone, ALiBi and rotations.

Exported models carry a copy of this file, so it imports nothing but torch, the standard library and
the files of positions. Shape letters as in positions.py.
"""

import torch
from torch import Tensor

from pretrain.model.position_encoding import PositionEncoding, PositionSettings, Rotation
from pretrain.model.position_tables import BUCKETS, RelativeBias

ALIBI_SPAN = 8  # of the exponents of the slopes: 2^-8 is the least, Press et al. Sec. 3


class NoPositions(PositionEncoding):
    """NoPE: no positions at all, alpha_ij = (x_i W^Q)(x_j W^K)^T / sqrt(d) (Haviv et al. 2022).

    Causal models learn the order from their mask. An encoder has none and sees a bag of words:
    Haviv et al. find that masked language models do need positions.
    """

    description = "no positions"
    source = (
        'Haviv et al., "Transformer Language Models without Positional Encodings Still Learn '
        'Positional Information", Findings of EMNLP 2022'
    )


class RelativeOnly(PositionEncoding):
    """T5: b_{j-i} alone, a learned scalar per head and distance bucket (Raffel et al. Sec. 2.1).

    alpha_ij = (x_i W^Q)(x_j W^K)^T / sqrt(d) + b_{j-i}. T5 itself has no 1/sqrt(d): its initial
    values are smaller instead. [CLS] is treated like any word.
    """

    description = "relative positions alone (T5)"
    source = (
        'Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text '
        'Transformer", JMLR 2020'
    )
    own_settings = BUCKETS

    def __init__(self, settings: PositionSettings) -> None:
        super().__init__(settings)
        self.relative = RelativeBias(settings)

    def attention_bias(self, sequence_length: int) -> Tensor:
        """Return b_{j-i} for every pair."""
        bias_NSS: Tensor = self.relative(sequence_length)
        return bias_NSS


class LinearBiases(PositionEncoding):
    """ALiBi: scores fall linearly with the distance, -m_n |j - i| in head n (Press et al. Sec. 3).

    The paper is about causal models, where j <= i; encoders take both sides alike, as MosaicBERT
    does (Portes et al. 2023). There are no parameters. [CLS] is treated like any word.
    """

    description = "linear biases of the distance (ALiBi)"
    source = (
        'Press, Smith, Lewis, "Train Short, Test Long: Attention with Linear Biases Enables Input '
        'Length Extrapolation", ICLR 2022'
    )

    def attention_bias(self, sequence_length: int) -> Tensor:
        """Return -m_n |j - i|."""
        position_S = torch.arange(sequence_length, dtype=torch.float32)
        distance_SS = (position_S[:, None] - position_S).abs()
        return -alibi_slopes(self.num_heads)[:, None, None] * distance_SS


def alibi_slopes(num_heads: int) -> Tensor:
    """Return the slope m_N of each head: 2^(-8n/N) of head n = 1 .. N where N is a power of two.

    Other numbers take those of the power of two below, and then every second one of the power of
    two above, as the authors' code does.
    """
    lower = 1 << (num_heads.bit_length() - 1)
    head_N = torch.arange(1, num_heads + 1, dtype=torch.float32)
    between_N = head_N - lower - 0.5
    return torch.exp2(-ALIBI_SPAN / lower * torch.where(head_N <= lower, head_N, between_N))


class Rotary(PositionEncoding):
    """RoPE: queries and keys are rotated by angles that grow with the position (RoFormer Eq. 14).

    Pair c of a head turns by s base^(-2c/H) at position s, so that positions enter a score by the
    distance j - i alone; the base is `model.rotary_base`, 10,000 in the paper (Sec. 3.2.2). There
    are no parameters. The paper pairs neighbouring dimensions, 2c and 2c + 1 (Eq. 15); here c is
    paired with c + H/2, as in transformers' rotary code. The two differ by a permutation of the
    rows of W^Q and W^K.
    """

    description = "rotary positions (RoPE)"
    source = 'Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021'
    own_settings = ("rotary_base",)

    def __init__(self, settings: PositionSettings) -> None:
        super().__init__(settings)
        self.base = settings.rotary_base

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
        """Return cosine and sine of s base^(-2c/H)."""
        # fp64: in fp32 the angle of position 2^18 would be wrong by 0.015. Not every device has it
        # (Apple's do not), and a copy from the host would let it wait for one that has.
        place = device if torch.device(device).type == "cuda" else "cpu"
        position_S = torch.arange(sequence_length, device=place, dtype=torch.float64)
        dimension_C = torch.arange(0, self.head_width, 2, device=place, dtype=torch.float64)
        angle_SC = position_S[:, None] * self.base ** (-dimension_C / self.head_width)
        return Rotation(*(f(angle_SC).float().to(device) for f in (torch.cos, torch.sin)))
