"""Read a checkpoint of the TUPE authors' code (github.com/guolinke/TUPE, a fork of fairseq).

It is `tupe-r`, or `tupe-a` if trained without --rel-pos, and differs from the paper in three ways:
each part of the positional term is reset separately (`cls_reset = "reference"`), the projections
of positions have a bias, and LayerNorm adds 1e-5. The logits are equal.
"""

import argparse
import re
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor

from data_prep.files.quoting import plain, quoted
from pretrain.config.errors import ConfigError
from pretrain.config.settings import ModelSettings, explain
from pretrain.convert.stored_weights import UNREADABLE
from pretrain.convert.weight_checks import check_names, check_weights, describe_names, named_tensors

ENCODER = "decoder.sentence_encoder."
HEAD = "decoder.lm_head."
TOKENS = f"{ENCODER}embed_tokens.weight"
POSITIONS = f"{ENCODER}pos.weight"
RELATIVE = f"{ENCODER}relative_attention_bias.weight"
TIED = f"{HEAD}weight"
LAYER = re.compile(rf"{re.escape(ENCODER)}layers\.([0-9]{{1,9}})\.")
UNUSED = "classification_heads."  # of fine-tuning
OUR_POSITIONS = "encoder.positions.projected.position_embeddings.weight"
OUR_RELATIVE = "encoder.positions.relative.bucket_embeddings.weight"

LAYER_NORM_EPSILON = 1e-5  # torch's default, which their LayerNorm keeps

# Theirs -> ours, each with a weight and a bias.
LAYERS = {
    f"{ENCODER}emb_layer_norm": "encoder.embedding_norm",
    f"{ENCODER}pos_ln": "encoder.positions.projected.norm",
    f"{ENCODER}pos_q_linear": "encoder.positions.projected.query",
    f"{ENCODER}pos_k_linear": "encoder.positions.projected.key",
    f"{HEAD}dense": "head.dense",
    f"{HEAD}layer_norm": "head.norm",
}
LAST_NORM = {f"{ENCODER}emb_out_layer_norm": "encoder.final_norm"}  # PreLN only
LAYERS_OF_BLOCK = {
    "self_attn.out_proj": "attention.output",
    "self_attn_layer_norm": "attention_norm",
    "fc1": "feedforward.inner",
    "fc2": "feedforward.output",
    "final_layer_norm": "feedforward_norm",
}


class _Ignored:
    """Replaces objects of fairseq that a checkpoint holds beside the weights."""


def read_tupe(file: Path) -> tuple[ModelSettings, dict[str, Tensor]]:
    """Read shape and weights without executing anything in the file.

    Raises:
        ConfigError: it is no such checkpoint, or has a setting that is not supported.
    """
    arguments, stored = _content(file)
    model = _model_settings(arguments, stored, file)
    names = tupe_names(model)
    expected = names.keys() | {POSITIONS, TIED}
    check_names(stored, expected, place=str(file), unused=(UNUSED,))
    if not torch.equal(stored[TIED], stored[TOKENS]):
        raise ConfigError(f"{file}: {TIED} differs from {TOKENS}; here they are tied")
    weights = {ours: stored[theirs].float() for theirs, ours in names.items()}
    weights[OUR_POSITIONS] = our_position_table(stored[POSITIONS].float())
    check_weights(weights, model, place=str(file))
    return model, weights


def tupe_names(model: ModelSettings) -> dict[str, str]:
    """Map the names of the authors' code to ours, without the position table."""
    layers = dict(LAYERS)
    if model.norm == "pre":
        layers |= LAST_NORM
    for number in range(model.num_layers):
        for theirs, ours in LAYERS_OF_BLOCK.items():
            layers[f"{ENCODER}layers.{number}.{theirs}"] = f"encoder.blocks.{number}.{ours}"
    names = {
        f"{theirs}.{kind}": f"{ours}.{kind}"
        for theirs, ours in layers.items()
        for kind in ("weight", "bias")
    }
    for number in range(model.num_layers):
        for kind in ("weight", "bias"):  # queries, keys and values concatenated, as ours
            theirs = f"{ENCODER}layers.{number}.self_attn.in_proj_{kind}"
            names[theirs] = f"encoder.blocks.{number}.attention.query_key_value.{kind}"
    names |= {TOKENS: "encoder.token_embeddings.weight", f"{HEAD}bias": "head.output_bias"}
    if model.positions == "tupe-r":
        names[RELATIVE] = OUR_RELATIVE  # the same layout with cls_reset = "reference"
    return names


def our_position_table(theirs_RD: Tensor) -> Tensor:
    """Return the rows in our order: a word's position i is row i, the last two rows are p_theta.

    Theirs begins with p_theta_1 (from [CLS]) and p_theta_2 (to [CLS]), and has position i in row
    i + 1. Position 0, [CLS], shares the row of p_theta_2; the reset overwrites what it gives.
    """
    return torch.cat([theirs_RD[1:], theirs_RD[:2]])


def _content(file: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the arguments of training and the weights."""
    harmless: list[Any] = [argparse.Namespace]
    # Training statistics that fairseq stores as objects: read as empty objects.
    meters = ("AverageMeter", "TimeMeter", "StopwatchMeter")
    harmless += [(_Ignored, f"fairseq.meters.{meter}") for meter in meters]
    try:
        with torch.serialization.safe_globals(harmless):
            state = torch.load(file, map_location="cpu", weights_only=True)
    except UNREADABLE as error:
        reason = plain(str(error).strip().partition("\n")[0])
        raise ConfigError(
            f"{file} is damaged, or holds more than can be read without executing what is in it "
            f"({reason}); where you trust it, save its entries 'args' and 'model' alone with "
            "torch.save"
        ) from None
    arguments = state.get("args") if isinstance(state, dict) else None
    weights = state.get("model") if isinstance(state, dict) else None
    if not isinstance(arguments, argparse.Namespace) or not isinstance(weights, dict):
        raise ConfigError(
            f"{file} is no checkpoint of the TUPE authors' code, which has the entries 'args' and "
            "'model'"
        )
    return vars(arguments), named_tensors(weights, place=str(file))


def _model_settings(
    arguments: dict[str, Any], stored: dict[str, Tensor], file: Path
) -> ModelSettings:
    """Return shape and variant, from the weights where they determine them."""
    _refuse_other_models(arguments, stored, file)
    for name in (TOKENS, POSITIONS, RELATIVE):
        if name in stored and stored[name].ndim != 2:
            raise ConfigError(f"{file}: {name} is no table but {tuple(stored[name].shape)}")
    width, feedforward = stored[TOKENS].shape[1], stored.get(f"{ENCODER}layers.0.fc1.weight")
    numbers = [int(found[1]) for found in map(LAYER.match, stored) if found]
    try:
        return ModelSettings(
            num_layers=max(numbers, default=-1) + 1,
            width=width,
            num_heads=arguments.get("encoder_attention_heads", "not in args"),
            feedforward_width=4 * width if feedforward is None else feedforward.shape[:1].numel(),
            vocabulary_size=len(stored[TOKENS]),
            max_sequence_length=len(stored[POSITIONS]) - 1,
            positions="tupe-r" if RELATIVE in stored else "tupe-a",
            cls_reset="reference" if RELATIVE in stored else "paper",  # one part: no difference
            position_projection_bias=True,
            norm="pre" if arguments.get("encoder_normalize_before") else "post",
            relative_buckets=len(stored[RELATIVE]) - 1 if RELATIVE in stored else 32,
            dropout=arguments.get("dropout", 0.1),
            attention_dropout=arguments.get("attention_dropout", 0.1),
            layer_norm_epsilon=LAYER_NORM_EPSILON,
        )
    except ValidationError as error:
        raise ConfigError(f"{file}: {explain(error)}") from None


def _refuse_other_models(arguments: dict[str, Any], stored: dict[str, Tensor], file: Path) -> None:
    if missing := [name for name in (TOKENS, POSITIONS) if name not in stored]:
        raise ConfigError(
            f"{file} lacks {describe_names(missing)}; it is no checkpoint of the TUPE authors' code"
        )
    if f"{ENCODER}emb_layer_norm.weight" not in stored:
        raise ConfigError(
            f"{file} has no {ENCODER}emb_layer_norm: it was trained without --embedding-normalize, "
            "which every command of the authors has, and the encoder here always normalises its "
            "input"
        )
    activation = arguments.get("activation_fn", "gelu")
    if activation != "gelu":
        raise ConfigError(
            f"{file} was trained with activation_fn={quoted(activation)}; the encoder here has gelu"
        )
