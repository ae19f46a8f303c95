"""The names of our weights in Hugging Face's `BertForMaskedLM`, for both directions.

Only `model.positions = "bert-a"` with `model.norm = "post"` is that model. Its token types and its
pooler have no counterpart here: rows of pre-training have no second segment.
"""

import torch
from torch import Tensor

# Ours -> theirs. Where there are several, ours is the concatenation of their rows.
_LAYERS_OF_MODEL = {
    "encoder.embedding_norm": ("bert.embeddings.LayerNorm",),
    "head.dense": ("cls.predictions.transform.dense",),
    "head.norm": ("cls.predictions.transform.LayerNorm",),
}
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
TOKEN_TYPES = "bert.embeddings.token_type_embeddings.weight"


def bert_names(num_layers: int) -> dict[str, tuple[str, ...]]:
    """Return BERT's names of every weight: one, or three that ours concatenates."""
    layers: dict[str, tuple[str, ...]] = dict(_LAYERS_OF_MODEL)
    for number in range(num_layers):
        for ours, theirs in _LAYERS_OF_BLOCK.items():
            layers[f"encoder.blocks.{number}.{ours}"] = tuple(
                f"bert.encoder.layer.{number}.{name}" for name in theirs
            )
    names: dict[str, tuple[str, ...]] = {
        "encoder.token_embeddings.weight": ("bert.embeddings.word_embeddings.weight",),
        POSITIONS: ("bert.embeddings.position_embeddings.weight",),
        "head.output_bias": ("cls.predictions.bias",),
    }
    for ours, several in layers.items():
        for kind in ("weight", "bias"):
            names[f"{ours}.{kind}"] = tuple(f"{theirs}.{kind}" for theirs in several)
    return names


def to_bert(weights: dict[str, Tensor], num_layers: int) -> dict[str, Tensor]:
    """Return weights of a MaskedLanguageModel under BERT's names, without token types."""
    renamed: dict[str, Tensor] = {}
    for ours, theirs in bert_names(num_layers).items():
        renamed |= zip(theirs, weights[ours].chunk(len(theirs)), strict=True)
    return renamed


def from_bert(weights: dict[str, Tensor], num_layers: int) -> dict[str, Tensor]:
    """Return BERT's weights under our names, row 0 of its token types in the position table.

    BERT adds both to every word of a single segment.

    Raises:
        KeyError: one is missing.
    """
    renamed = {
        ours: torch.cat([weights[name] for name in theirs])
        for ours, theirs in bert_names(num_layers).items()
    }
    if TOKEN_TYPES in weights:
        renamed[POSITIONS] = renamed[POSITIONS] + weights[TOKEN_TYPES][0]
    return renamed
