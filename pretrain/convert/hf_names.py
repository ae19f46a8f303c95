"""The names of our weights in transformers' BERT and ELECTRA, for both directions.

Only `model.positions = "bert-a"` with `model.norm = "post"` is one of these models. Token types and
poolers have no counterpart here: rows of pre-training have no second segment.
"""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from pretrain.config.errors import ConfigError
from pretrain.config.settings import DEFAULT_OBJECTIVE, REPLACED_TOKEN_DETECTION

# Ours -> theirs. Where there are several, ours is the concatenation of their rows.
_LAYERS_OF_BLOCK = {
    "attention.query_key_value": (
        "attention.self.query",
        "attention.self.key",
        "attention.self.value",
    ),
    "attention.output": ("attention.output.dense",),
    "attention_norm": ("attention.output.LayerNorm",),
    "feedforward.inner": ("intermediate.dense",),
    "feedforward.output": ("output.dense",),
    "feedforward_norm": ("output.LayerNorm",),
}
POSITIONS = "encoder.positions.position_embeddings.weight"


class StockModel(NamedTuple):
    """A model of transformers that is the same as one of ours."""

    title: str
    model_type: str  # in config.json
    architecture: str  # the class that loads it with its head
    prefix: str  # of the encoder's weights
    head_layers: dict[str, str]  # ours -> theirs
    head_weights: dict[str, str]  # the same, of single weights

    @property
    def token_types(self) -> str:
        """Return the name of the table of token types."""
        return f"{self.prefix}embeddings.token_type_embeddings.weight"


BERT = StockModel(
    *("BERT", "bert", "BertForMaskedLM", "bert."),
    {
        "head.dense": "cls.predictions.transform.dense",
        "head.norm": "cls.predictions.transform.LayerNorm",
    },
    {"head.output_bias": "cls.predictions.bias"},
)
ELECTRA = StockModel(
    *("ELECTRA", "electra", "ElectraForPreTraining", "electra."),
    {
        "head.dense": "discriminator_predictions.dense",
        "head.dense_prediction": "discriminator_predictions.dense_prediction",
    },
    {},
)
STOCK_MODELS = {DEFAULT_OBJECTIVE: BERT, REPLACED_TOKEN_DETECTION: ELECTRA}  # by objective


def stock_names(kind: StockModel, num_layers: int) -> dict[str, tuple[str, ...]]:
    """Return their names of every weight: one, or three that ours concatenates."""
    tables = f"{kind.prefix}embeddings"
    layers: dict[str, tuple[str, ...]] = {
        "encoder.embedding_norm": (f"{tables}.LayerNorm",),
        **{ours: (theirs,) for ours, theirs in kind.head_layers.items()},
    }
    for number in range(num_layers):
        for ours, theirs in _LAYERS_OF_BLOCK.items():
            layers[f"encoder.blocks.{number}.{ours}"] = tuple(
                f"{kind.prefix}encoder.layer.{number}.{name}" for name in theirs
            )
    names: dict[str, tuple[str, ...]] = {
        "encoder.token_embeddings.weight": (f"{tables}.word_embeddings.weight",),
        POSITIONS: (f"{tables}.position_embeddings.weight",),
        **{ours: (theirs,) for ours, theirs in kind.head_weights.items()},
    }
    for ours, several in layers.items():
        for part in ("weight", "bias"):
            names[f"{ours}.{part}"] = tuple(f"{theirs}.{part}" for theirs in several)
    return names


def to_stock(weights: dict[str, Tensor], kind: StockModel, num_layers: int) -> dict[str, Tensor]:
    """Return the weights of one of our models under their names, without token types."""
    renamed: dict[str, Tensor] = {}
    for ours, theirs in stock_names(kind, num_layers).items():
        renamed |= zip(theirs, weights[ours].chunk(len(theirs)), strict=True)
    return renamed


def from_stock(weights: dict[str, Tensor], kind: StockModel, num_layers: int) -> dict[str, Tensor]:
    """Return their weights under our names, row 0 of the token types in the position table.

    They add both to every word of a single segment.

    Raises:
        KeyError: one is missing.
    """
    renamed = {
        ours: torch.cat([weights[name] for name in theirs])
        for ours, theirs in stock_names(kind, num_layers).items()
    }
    if kind.token_types in weights:
        renamed[POSITIONS] = renamed[POSITIONS] + weights[kind.token_types][0]
    return renamed


def with_modern_names(
    stored: dict[str, Tensor], kind: StockModel, folder: Path
) -> dict[str, Tensor]:
    """Return weights under the names of today's class with a head.

    Raises:
        ConfigError: two of them have one name, and differ.
    """
    renamed: dict[str, Tensor] = {}
    for name, tensor in stored.items():
        modern = _modern_name(name, kind)
        other = renamed.setdefault(modern, tensor)
        if other is not tensor and not torch.equal(other, tensor):  # NaN differs from itself
            raise ConfigError(f"{folder}: two weights are {modern}, as {name} is, and they differ")
    return renamed


def _modern_name(name: str, kind: StockModel) -> str:
    """Return the name of today: checkpoints of 2018 have gamma and beta."""
    if name.endswith(".gamma"):
        name = name.removesuffix("gamma") + "weight"
    elif name.endswith(".beta"):
        name = name.removesuffix("beta") + "bias"
    if name == "cls.predictions.decoder.bias":
        return "cls.predictions.bias"
    if name.startswith(("embeddings.", "encoder.", "pooler.")):
        return f"{kind.prefix}{name}"
    return name
