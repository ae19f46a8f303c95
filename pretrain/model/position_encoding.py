"""What a position encoding is: its settings, its hooks, and the terms that it hands to attention.

An encoding may act at five places, and overrides the hooks that it uses:

    add_to_embeddings   the input vectors                             x_BSD -> x_BSD
    attention_bias      added to the scaled scores of every layer     -> bias_NSS
    query_key_terms     added to the queries and keys of every layer  -> (q_NSH, k_NSH)
    rotation            of the queries and keys of every layer        -> Rotation
    relative_keys       of one layer, one for each distance j - i     -> key_RH

The three in the middle depend on no input, so they are computed once per forward pass and shared by
all layers (TUPE Sec. 3.3), in fp32: the gradients of all layers are summed in the bias, and a bf16
sum over 12 layers loses accuracy. Relative keys meet the queries, so each layer forms their scores.

Exported models carry a copy of this file, so it imports nothing but torch and the standard library.
Shape letters as in positions.py.
"""

from types import SimpleNamespace
from typing import NamedTuple

import torch
from torch import Tensor, nn


class PositionSettings(SimpleNamespace):
    """The settings of a model, by their names: its shape, and what encodings have of their own."""

    num_layers: int
    width: int
    num_heads: int
    max_sequence_length: int
    layer_norm_epsilon: float

    @property
    def head_width(self) -> int:
        """Return the width of one attention head."""
        return self.width // self.num_heads


class Rotation(NamedTuple):
    """Angles by which pairs of query and key dimensions are rotated; C = H / 2, one per pair."""

    cosine_SC: Tensor
    sine_SC: Tensor


class PositionTerms(NamedTuple):
    """The terms of a forward pass: all layers share all of them but the last."""

    bias_NSS: Tensor | None = None
    query_key_NSH: tuple[Tensor, Tensor] | None = None
    rotation: Rotation | None = None
    read_bias_2NSS: Tensor | None = None  # beside bias_NSS, for the backend "triton"
    # Of one layer, see `PositionEncoding.of_layer`: row r is the key of distance r - (R - 1) / 2,
    # the first and the last also of all distances beyond; R is odd.
    relative_key_RH: Tensor | None = None


class PositionEncoding(nn.Module):
    """The base of all encodings; used alone, it adds no word order."""

    description: str  # a phrase for model cards
    source: str  # the paper that describes it
    own_settings: tuple[str, ...] = ()  # those of `EncodingSettings` that it reads

    # A score is a sum of this many dot products of independent vectors of width H, so scaling by
    # 1/sqrt(score_terms * H) keeps its variance (TUPE Sec. 3.3, "Normalization and rescaling").
    score_terms = 1
    has_attention_bias = has_relative_keys = False

    def __init_subclass__(cls) -> None:
        cls.has_attention_bias = cls.attention_bias is not PositionEncoding.attention_bias
        cls.has_relative_keys = cls.relative_keys is not PositionEncoding.relative_keys

    def __init__(self, settings: PositionSettings) -> None:
        super().__init__()
        self.num_heads, self.head_width = settings.num_heads, settings.head_width
        self.score_scale = float((self.score_terms * settings.head_width) ** -0.5)

    @classmethod
    def obstacle(cls, settings: PositionSettings) -> str | None:
        """Return why the encoding cannot be built with these settings, or None."""
        return None

    def tables(self) -> dict[str, list[nn.Parameter]]:
        """Return the tables with a learning rate of their own, by its setting in `optimizer`."""
        rates = {"position_embeddings": "position_rate", "bucket_embeddings": "relative_rate"}
        found: dict[str, list[nn.Parameter]] = {}
        for name, module in self.named_modules():
            if rate := rates.get(name.rpartition(".")[2]):
                found.setdefault(rate, []).extend(module.parameters())
        return found

    def add_to_embeddings(self, x_BSD: Tensor) -> Tensor:
        """Return the input vectors with positions mixed in; unchanged here."""
        return x_BSD

    def attention_bias(self, sequence_length: int) -> Tensor | None:
        """Return bias_NSS (fp32), or None where the encoding has none."""
        return None

    def query_key_terms(self, sequence_length: int) -> tuple[Tensor, Tensor] | None:
        """Return the terms added to queries and keys (q_NSH, k_NSH, fp32), or None."""
        return None

    def rotation(self, sequence_length: int, device: torch.device | str) -> Rotation | None:
        """Return how queries and keys are rotated (fp32), or None."""
        return None

    def relative_keys(self, layer: int, sequence_length: int) -> Tensor | None:
        """Return the key_RH of each distance in one layer (fp32), or None; see `PositionTerms`."""
        return None

    def terms(self, sequence_length: int, *, device: torch.device | str) -> PositionTerms:
        """Compute the terms of a forward pass, once for all layers."""
        with torch.device(device):  # for tensors that no parameter leads there, as in ALiBi
            bias_NSS = self.attention_bias(sequence_length)
        return PositionTerms(
            bias_NSS=bias_NSS,
            query_key_NSH=self.query_key_terms(sequence_length),
            rotation=self.rotation(sequence_length, device),
        )

    def of_layer(self, terms: PositionTerms, layer: int, sequence_length: int) -> PositionTerms:
        """Return the shared terms with those that the layer of this number, from 0, has alone."""
        key_RH = self.relative_keys(layer, sequence_length)
        return terms if key_RH is None else terms._replace(relative_key_RH=key_RH)


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


def relative_scores(q_BNSH: Tensor, key_RH: Tensor, scale: float) -> Tensor:
    """Return scale q_i a_{clip(j - i)}, shape BNSS, with the rows a of key_RH (Shaw et al. 2018).

    Each query is multiplied with R rows, not with S x S vectors, and the ends are repeated for the
    distances beyond them. Row i is then a window of the 2S distances that starts at S - 1 - i; read
    as one long row, all windows start 2S - 1 apart, so that they are a view.
    """
    length, reach = q_BNSH.shape[2], (len(key_RH) - 1) // 2
    scores_BNSR = q_BNSH @ (key_RH * scale).to(q_BNSH.dtype).t()
    before = scores_BNSR[..., :1].expand(*scores_BNSR.shape[:3], length - 1 - reach)
    after = scores_BNSR[..., -1:].expand(*scores_BNSR.shape[:3], length - reach)
    by_distance = torch.cat([before, scores_BNSR, after], dim=-1).flatten(-2)
    windows = by_distance[..., length - 1 : -1]
    return windows.view(*q_BNSH.shape[:3], 2 * length - 1)[..., :length]


def _rotated(x_BNSH: Tensor, rotation: Rotation) -> Tensor:
    first_BNSC, second_BNSC = widened(x_BNSH).chunk(2, dim=-1)
    cosine_SC, sine_SC = rotation
    rotated_BNSH = torch.cat(
        [
            first_BNSC * cosine_SC - second_BNSC * sine_SC,
            second_BNSC * cosine_SC + first_BNSC * sine_SC,
        ],
        dim=-1,
    )
    return rotated_BNSH.to(x_BNSH.dtype)


def widened(x: Tensor) -> Tensor:
    """Return x in fp32 at least."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
