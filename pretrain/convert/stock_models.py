"""Our weights as those of transformers' BERT and ELECTRA, and back; what differs is refused.

Only `model.positions = "bert-a"` with `model.norm = "post"` is one of these models. Token types and
poolers have no counterpart here: rows of pre-training have no second segment.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pretrain.config.settings import DEFAULT_OBJECTIVE, REPLACED_TOKEN_DETECTION, ModelSettings

# Ours -> theirs. Where there are several, ours is the concatenation of their rows.
_LAYERS_OF_BLOCK = {
    "attention.query_key_value": tuple(f"attention.self.{n}" for n in ("query", "key", "value")),
    "attention.output": ("attention.output.dense",),
    "attention_norm": ("attention.output.LayerNorm",),
    "feedforward.inner": ("intermediate.dense",),
    "feedforward.output": ("output.dense",),
    "feedforward_norm": ("output.LayerNorm",),
}
TOKEN_TYPES = "embeddings.token_type_embeddings.weight"  # after the prefix
WORDS, POSITIONS = "encoder.token_embeddings.weight", "encoder.positions.position_embeddings.weight"


class StockModel(NamedTuple):
    """A model of transformers that is the same as one of ours."""

    model_type: str  # in config.json
    architecture: str  # the class that loads it with its head
    prefix: str  # of the encoder's weights
    head_layers: dict[str, str]  # ours -> theirs
    head_weights: dict[str, str]  # the same, of single weights


BERT = StockModel(
    *("bert", "BertForMaskedLM", "bert."),
    {
        "head.dense": "cls.predictions.transform.dense",
        "head.norm": "cls.predictions.transform.LayerNorm",
    },
    {"head.output_bias": "cls.predictions.bias"},
)
ELECTRA = StockModel(
    *("electra", "ElectraForPreTraining", "electra."),
    {
        "head.dense": "discriminator_predictions.dense",
        "head.dense_prediction": "discriminator_predictions.dense_prediction",
    },
    {},
)
STOCK_MODELS = {DEFAULT_OBJECTIVE: BERT, REPLACED_TOKEN_DETECTION: ELECTRA}  # by objective
# Entry of the configuration -> its supported values; None: it lacks the entry.
UNDERSTOOD: dict[str, tuple[Any, ...]] = {
    "model_type": tuple(kind.model_type for kind in (BERT, ELECTRA)),
    "hidden_act": ("gelu", "gelu_python", None),  # all by the error function
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False, None),
    "add_cross_attention": (False, None),
    "tie_word_embeddings": (True, None),
}


def stock_model(model: ModelSettings, objective: str) -> StockModel | None:
    """Return the model of transformers that is the same; None: it has none."""
    is_stock = model.positions == "bert-a" and model.norm == "post"
    return STOCK_MODELS.get(objective) if is_stock else None


def stock_architecture(model: ModelSettings, objective: str) -> str | None:
    """Return the class of transformers that loads a model with its head; None: code of ours."""
    if isinstance(model.transformers, dict):
        return f"{model.transformers['model_type']} for AutoModelForMaskedLM"
    stock = stock_model(model, objective)
    return None if stock is None else stock.architecture


def stock_objective(config: Mapping[str, Any]) -> str | None:
    """Return the objective of ours that a configuration of transformers describes; None: none."""
    width = config.get("hidden_size")
    if any(config.get(name) not in values for name, values in UNDERSTOOD.items()) or (
        config.get("embedding_size", width) != width
    ):
        return None
    if config["model_type"] == BERT.model_type:
        return DEFAULT_OBJECTIVE
    named = str(config.get("architectures"))  # the others of an ELECTRA have no discriminator
    return REPLACED_TOKEN_DETECTION if ELECTRA.architecture in named else None


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
        WORDS: (f"{tables}.word_embeddings.weight",),
        POSITIONS: (f"{tables}.position_embeddings.weight",),
        **{ours: (theirs,) for ours, theirs in kind.head_weights.items()},
    }
    for ours, several in layers.items():
        for part in ("weight", "bias"):
            names[f"{ours}.{part}"] = tuple(f"{theirs}.{part}" for theirs in several)
    return names


def to_stock(weights: dict[str, Tensor], kind: StockModel, num_layers: int) -> dict[str, Tensor]:
    """Return the weights of one of our models under their names, with token types of zeros."""
    renamed = {f"{kind.prefix}{TOKEN_TYPES}": torch.zeros(2, weights[WORDS].shape[1])}
    for ours, theirs in stock_names(kind, num_layers).items():
        renamed |= zip(theirs, weights[ours].chunk(len(theirs)), strict=True)
    return renamed


def from_stock(stored: dict[str, Tensor], kind: StockModel, num_layers: int) -> dict[str, Tensor]:
    """Return their weights under our names, token type 0 in the position table.

    Rows of pre-training here have one segment: they add that row to every word of it, so that the
    logits are equal. What has no name here keeps its own.
    """
    left, renamed = dict(stored), dict[str, Tensor]()
    for ours, theirs in stock_names(kind, num_layers).items():
        if all(name in left for name in theirs):
            renamed[ours] = torch.cat([left.pop(name) for name in theirs])
    types = left.pop(f"{kind.prefix}{TOKEN_TYPES}", None)
    if types is not None and POSITIONS in renamed:
        renamed[POSITIONS] = renamed[POSITIONS] + types[0]
    return renamed | left
