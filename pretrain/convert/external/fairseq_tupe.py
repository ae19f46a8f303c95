"""Read a checkpoint of the TUPE authors' code (github.com/guolinke/TUPE, a fork of fairseq).

It is `tupe-r`, or `tupe-a` if trained without --rel-pos, and differs from the paper in three ways:
each part of the positional term is reset separately (`cls_reset = "reference"`), the projections
of positions have a bias, and LayerNorm adds 1e-5. The logits are equal.
"""

import argparse
import math
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from data_prep.files.quoting import first_line, plain, quoted
from data_prep.shards.manifest import TOKENIZER_FILE
from data_prep.text.text_encoder import TextEncoder, text_encoder_at
from data_prep.tokenizer.describe import record_of
from data_prep.tokenizer.fairseq import fairseq_tokenizer
from pretrain.config.errors import ConfigError
from pretrain.config.settings import ModelSettings, explained
from pretrain.convert.model import Pretrained
from pretrain.convert.weights import check_weights, in_fp32
from pretrain.model.objectives.masked_language_model import MaskedLanguageModel

ENCODER = "decoder.sentence_encoder."
HEAD = "decoder.lm_head."
TOKENS = f"{ENCODER}embed_tokens.weight"
POSITIONS = f"{ENCODER}pos.weight"
RELATIVE = f"{ENCODER}relative_attention_bias.weight"
TIED = f"{HEAD}weight"
LAYER = re.compile(rf"{re.escape(ENCODER)}layers\.([0-9]{{1,9}})\.")
UNUSED = "classification_heads."  # of fine-tuning
# As the authors' scripts call them.
DICTIONARY_FILE, MERGES_FILE = "dict.txt", "bpe-code"
MOSES_LANGUAGE = "en"  # of the authors' preparation of text
OUR_TOKENS, OUR_BIAS = "encoder.token_embeddings.weight", "head.output_bias"
OUR_POSITIONS = "encoder.positions.projected.position_embeddings.weight"
OUR_RELATIVE = "encoder.positions.relative.bucket_embeddings.weight"

# Theirs -> ours, each with a weight and a bias.
LAYERS = {
    f"{ENCODER}emb_layer_norm": "encoder.embedding_norm",
    f"{ENCODER}pos_ln": "encoder.positions.projected.norm",
    f"{ENCODER}pos_q_linear": "encoder.positions.projected.query",
    f"{ENCODER}pos_k_linear": "encoder.positions.projected.key",
    f"{HEAD}dense": "head.dense",
    f"{HEAD}layer_norm": "head.norm",
}
LAYERS_OF_BLOCK = {
    "self_attn.out_proj": "attention.output",
    "self_attn_layer_norm": "attention_norm",
    "fc1": "feedforward.inner",
    "fc2": "feedforward.output",
    "final_layer_norm": "feedforward_norm",
}


class _Ignored:
    """Replaces objects of fairseq that a checkpoint holds beside the weights."""


def read_tupe(file: Path) -> Pretrained:
    """Read a checkpoint with its tokenizer, without executing anything in the file.

    Raises:
        ConfigError: it is no such checkpoint, or has a setting that is not supported.
        TokenizerError: its tokenizer is that of another model.
    """
    arguments, stored = _content(file)
    model = _model_settings(arguments, stored, file)
    weights, tokenizer = _our_weights(stored, model, file), file.parent / TOKENIZER_FILE
    if tokenizer.is_file():
        text_encoder = text_encoder_at(str(tokenizer), moses=MOSES_LANGUAGE)
    else:
        dictionary, codes = file.parent / DICTIONARY_FILE, file.parent / MERGES_FILE
        if missing := [each for each in (dictionary, codes) if not each.is_file()]:
            raise ConfigError(
                f"there is no {missing[0]}, and without it the ids of {file} mean nothing; put "
                f"{DICTIONARY_FILE} and {MERGES_FILE} beside it, or a {TOKENIZER_FILE} of the same "
                "ids"
            )
        made, copies = fairseq_tokenizer(dictionary, codes, num_rows=model.vocabulary_size)
        record = record_of(made, None, kind="loaded", moses=MOSES_LANGUAGE)
        text_encoder = TextEncoder(made, record)
        if copies:
            # A piece that BPE makes and the dictionary lacks is <unk> to the model. Its copy has
            # the same vector; the bias is lowered by log(1 + copies), so that the copies share the
            # probability of <unk> and those of all other tokens are unchanged.
            unk, embeddings = text_encoder.special["unk"], weights[OUR_TOKENS]
            bias = weights[OUR_BIAS].clone()
            bias[unk] -= math.log(1 + copies)
            weights[OUR_TOKENS] = torch.cat([embeddings, embeddings[unk].expand(copies, -1)])
            weights[OUR_BIAS] = torch.cat([bias, bias[unk].expand(copies)])
            size = model.vocabulary_size + copies
            model = model.model_copy(update={"vocabulary_size": size})
    return Pretrained(
        model=model,
        weights=weights,
        text_encoder=text_encoder,
        name=file.stem,
        place=str(file.absolute()),
        step=None,
        sequence_length=model.max_sequence_length,
    ).checked()


def _our_weights(stored: dict[str, Tensor], model: ModelSettings, file: Path) -> dict[str, Tensor]:
    """Return the weights under our names in fp32; what has none here keeps its name."""
    left = in_fp32({name: w for name, w in stored.items() if not name.startswith(UNUSED)})
    tied = left.pop(TIED, None)
    if tied is None or not torch.equal(tied, left[TOKENS]):
        raise ConfigError(f"{file}: {TIED} differs from {TOKENS}; here they are tied")
    weights = {
        ours: left.pop(theirs) for theirs, ours in tupe_names(model).items() if theirs in left
    }
    # Theirs begins with p_theta_1 (from [CLS]) and p_theta_2 (to [CLS]), and has position i in row
    # i + 1; ours has position i in row i and ends with both. Position 0, [CLS], shares the row of
    # p_theta_2; the reset overwrites what it gives.
    table_RD = left.pop(POSITIONS)
    weights[OUR_POSITIONS] = torch.cat([table_RD[1:], table_RD[:2]])
    check_weights(weights | left, lambda: MaskedLanguageModel(model), place=str(file))
    return weights


def tupe_names(model: ModelSettings) -> dict[str, str]:
    """Map the names of the authors' code to ours, without the position table."""
    layers = dict(LAYERS)
    if model.norm == "pre":
        layers[f"{ENCODER}emb_out_layer_norm"] = "encoder.final_norm"
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
    names |= {TOKENS: OUR_TOKENS, f"{HEAD}bias": OUR_BIAS}
    if model.positions == "tupe-r":
        names[RELATIVE] = OUR_RELATIVE  # the same layout with cls_reset = "reference"
    return names


def _content(file: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the arguments of training and the weights."""
    harmless: list[Any] = [argparse.Namespace]
    # Training statistics that fairseq stores as objects: read as empty objects.
    meters = ("AverageMeter", "TimeMeter", "StopwatchMeter")
    harmless += [(_Ignored, f"fairseq.meters.{meter}") for meter in meters]
    try:
        with torch.serialization.safe_globals(harmless):
            state = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # of any class: the file may hold anything
        reason = plain(first_line(error))
        raise ConfigError(
            f"{file} is damaged, or holds more than can be read without executing what is in it "
            f"({reason}); where you trust it, save its entries 'args' and 'model' alone with "
            "torch.save"
        ) from None
    entries = state if isinstance(state, dict) else {}
    arguments, weights = entries.get("args"), entries.get("model")
    if not isinstance(arguments, argparse.Namespace) or not isinstance(weights, dict):
        raise ConfigError(
            f"{file} is no checkpoint of the TUPE authors' code, which has the entries 'args' and "
            "'model'"
        )
    for name, tensor in weights.items():
        # An expanded view of a small file could fill any memory once it is copied.
        is_plain = isinstance(tensor, Tensor) and tensor.layout is torch.strided
        if not isinstance(name, str) or not is_plain or not tensor.is_contiguous():
            raise ConfigError(f"{file}: {quoted(name)} is no weight stored in full")
    return vars(arguments), weights


def _model_settings(
    arguments: dict[str, Any], stored: dict[str, Tensor], file: Path
) -> ModelSettings:
    """Return shape and variant, from the weights where they determine them."""
    activation = arguments.get("activation_fn", "gelu")
    if activation != "gelu":
        raise ConfigError(
            f"{file} was trained with activation_fn={quoted(activation)}; the encoder here has gelu"
        )
    for name in (TOKENS, POSITIONS, *([RELATIVE] if RELATIVE in stored else [])):
        if name not in stored or stored[name].ndim != 2:
            raise ConfigError(
                f"{file} has no table {name}; it is no checkpoint of the TUPE authors' code"
            )
    width, feedforward = stored[TOKENS].shape[1], stored.get(f"{ENCODER}layers.0.fc1.weight")
    numbers = [int(found[1]) for found in map(LAYER.match, stored) if found]
    with explained(f"{file}: "):
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
            layer_norm_epsilon=1e-5,  # torch's default, which their LayerNorm keeps
        )
