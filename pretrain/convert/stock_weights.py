"""Weights of transformers' BERT and ELECTRA under our names; what differs from ours is refused."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from data_prep.files.quoting import quoted
from pretrain.config.errors import ConfigError
from pretrain.config.settings import ModelSettings
from pretrain.convert.hf_names import (
    BERT,
    ELECTRA,
    STOCK_MODELS,
    StockModel,
    from_stock,
    to_stock,
    with_modern_names,
)
from pretrain.convert.weight_checks import check_names, check_shapes, shapes_of

# Of BertForPreTraining and of fine-tuned models: no part of pre-training here.
UNUSED = (
    "bert.pooler.",
    *(f"{kind.prefix}embeddings.position_ids" for kind in (BERT, ELECTRA)),
    "cls.seq_relationship.",
    "classifier.",
    "qa_outputs.",
)
TIED = "cls.predictions.decoder.weight"
HEADS = {BERT.model_type: "masked-language-model", ELECTRA.model_type: "discriminator's"}
# Entry of the configuration -> its supported values; None: it lacks the entry.
UNDERSTOOD: dict[str, tuple[Any, ...]] = {
    "model_type": tuple(kind.model_type for kind in (BERT, ELECTRA)),
    "hidden_act": ("gelu", "gelu_python", None),  # all by the error function
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False, None),
    "add_cross_attention": (False, None),
}


def check_understood(config: Mapping[str, Any], place: Path) -> None:
    """Check that a configuration of transformers asks for nothing that differs from ours.

    Raises:
        ConfigError: it does; names the entry.
    """
    if "model_type" not in config:
        raise ConfigError(
            f'{place} does not say which model this is; add "model_type": "{BERT.model_type}" to '
            f'it, or "{ELECTRA.model_type}"'
        )
    for name, values in UNDERSTOOD.items():
        if config.get(name) not in values:
            raise ConfigError(
                f"{place} has {name}={quoted(config.get(name))}; supported are BERT and ELECTRA "
                f"with {name}={values[0]!r}"
            )


def weights_from_stock(
    stored: dict[str, Tensor], kind: StockModel, model: ModelSettings, folder: Path, *, instead: str
) -> dict[str, Tensor]:
    """Return the weights under our names, in fp32.

    Args:
        stored: all weights of the folder.
        kind: of model.
        model: its shape.
        folder: where it is.
        instead: what to give where its head is missing.

    Raises:
        ConfigError: weights are missing, unknown, of another shape or not finite.
    """
    stored = with_modern_names(stored, kind, folder)
    objective = next(name for name, stock in STOCK_MODELS.items() if stock is kind)
    expected = to_stock(shapes_of(model, objective), kind, model.num_layers)
    types = stored.get(kind.token_types, torch.empty(1))
    rows = max(1, types.shape[:1].numel())
    expected[kind.token_types] = torch.empty(rows, model.width, device="meta")
    check_names(
        stored,
        expected,
        place=str(folder),
        encoder=(kind.prefix,),
        unused=(*UNUSED, TIED),
        head=HEADS[kind.model_type],
        instead=instead,
    )
    if TIED in stored and not torch.equal(
        stored[TIED], stored["bert.embeddings.word_embeddings.weight"]
    ):
        raise ConfigError(f"{folder}: {TIED} differs from the word embeddings; here they are tied")
    check_shapes(stored, expected, expected, place=str(folder))
    # In full precision before row 0 of the token types is added.
    return from_stock({name: stored[name].float() for name in expected}, kind, model.num_layers)
