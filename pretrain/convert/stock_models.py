"""Our weights as those of transformers' BERT and ELECTRA, and back; what differs is refused.

Only `model.positions = "bert-a"` with `model.norm = "post"` is one of these models. Token types and
poolers have no counterpart here: rows of pre-training have no second segment.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from data_prep.files.quoting import quoted
from pretrain.config.errors import ConfigError
from pretrain.config.settings import DEFAULT_OBJECTIVE, REPLACED_TOKEN_DETECTION, ModelSettings
from pretrain.convert.weights import in_fp32

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
WORDS, POSITIONS = "encoder.token_embeddings.weight", "encoder.positions.position_embeddings.weight"


class StockModel(NamedTuple):
    """A model of transformers that is the same as one of ours."""

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
# Of BertForPreTraining and of fine-tuned models: no part of pre-training here.
UNUSED = (
    "bert.pooler.",
    *(f"{kind.prefix}embeddings.position_ids" for kind in (BERT, ELECTRA)),
    *("cls.seq_relationship.", "classifier.", "qa_outputs."),
)
TIED = "cls.predictions.decoder.weight"
OLD = {"gamma": "weight", "beta": "bias"}  # of 2018
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


def check_understood(config: Mapping[str, Any], place: Path) -> None:
    """Check that a configuration of transformers asks for nothing that differs from ours.

    Raises:
        ConfigError: it does; names the entry.
    """
    for name, values in UNDERSTOOD.items():
        if config.get(name) not in values:
            raise ConfigError(
                f"{place} has {name}={quoted(config.get(name))}; supported are BERT and ELECTRA "
                f"with {name}={values[0]!r}"
            )


def is_understood(config: Mapping[str, Any]) -> bool:
    """Return whether a model is one of ours; else it is one of transformers, as it is."""
    architectures = config.get("architectures") or ()
    others = {"ElectraForMaskedLM", "BertModel", "ElectraModel"} & set(architectures)
    projects = config.get("embedding_size", config.get("hidden_size")) != config.get("hidden_size")
    known = all(config.get(name) in values for name, values in UNDERSTOOD.items())
    return known and not others and not projects


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
    renamed: dict[str, Tensor] = {kind.token_types: torch.zeros(2, weights[WORDS].shape[1])}
    for ours, theirs in stock_names(kind, num_layers).items():
        renamed |= zip(theirs, weights[ours].chunk(len(theirs)), strict=True)
    return renamed


def from_stock(
    stored: dict[str, Tensor], kind: StockModel, num_layers: int, folder: Path
) -> dict[str, Tensor]:
    """Return their weights under our names in fp32, token type 0 in the position table.

    They add both to every word of a single segment. What has no name here, or parts that do not
    belong together, keep their names.

    Raises:
        ConfigError: two weights have one name and differ, or the token types are no table.
    """
    left = in_fp32(_modern(stored, kind, folder))
    renamed: dict[str, Tensor] = {}
    for ours, theirs in stock_names(kind, num_layers).items():
        parts = [left[name] for name in theirs if name in left]
        kinds = {(part.shape, part.dtype) for part in parts}
        if len(parts) == len(theirs) and len(kinds) == 1 and parts[0].ndim:
            renamed[ours] = torch.cat([left.pop(name) for name in theirs])
    types, positions = (left.pop(kind.token_types, None), renamed.get(POSITIONS))
    if types is not None and positions is not None:
        is_table = types.shape[1:] == positions.shape[1:] and types.dtype == positions.dtype
        if not is_table or not len(types):
            raise ConfigError(f"{folder}: {kind.token_types} is no table beside the positions")
        renamed[POSITIONS] = positions + types[0]
    if TIED in left and not torch.equal(left.pop(TIED), renamed.get(WORDS, torch.zeros(()))):
        raise ConfigError(f"{folder}: {TIED} differs from the word embeddings; here they are tied")
    return renamed | {name: w for name, w in left.items() if not name.startswith(UNUSED)}


def _modern(stored: dict[str, Tensor], kind: StockModel, folder: Path) -> dict[str, Tensor]:
    """Return weights under the names of today's class with a head."""
    renamed: dict[str, Tensor] = {}
    for name, tensor in stored.items():
        stem, _, last = name.rpartition(".")
        modern = f"{stem}.{OLD[last]}" if last in OLD else name
        if modern == "cls.predictions.decoder.bias":
            modern = "cls.predictions.bias"
        elif modern.startswith(("embeddings.", "encoder.", "pooler.")):
            modern = f"{kind.prefix}{modern}"
        other = renamed.setdefault(modern, tensor)
        if other is not tensor and not torch.equal(other, tensor):  # NaN differs from itself
            raise ConfigError(f"{folder}: two weights are {modern}, as {name} is, and they differ")
    return renamed
