"""The tokenizer of an exported model, in the files that transformers' AutoTokenizer reads."""

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, normalizers, processors

from data_prep.files.atomic import save_text
from data_prep.shards.manifest import TOKENIZER_FILE
from pretrain.convert.hf_format import ExportRecord, is_stock_bert, write_model
from pretrain.convert.pretrained import Pretrained
from pretrain.convert.text_encoder import TextEncoder

TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
SPECIAL_TOKENS_FILE = "special_tokens_map.json"


def write_tokenizer(
    folder: Path, words: TextEncoder, *, sequence_length: int, with_token_types: bool
) -> None:
    """Write a tokenizer that makes the rows of `TextEncoder.pair_ids`, and knows the mask.

    Moses cannot be written into these files: where it comes before the tokenizer, users must apply
    it themselves. White space in front of a whole text, which `TextEncoder` drops, is kept where
    the joint is a space.

    Args:
        folder: where the files go.
        words: of the model.
        sequence_length: longer rows are cut with truncation=True.
        with_token_types: whether the model takes token types, as BERT does.
    """
    save_text(folder / TOKENIZER_FILE, _tokenizer(words).to_str(pretty=True) + "\n")
    names = {
        f"{role}_token": words.tokenizer.id_to_token(number)
        for role, number in words.special.items()
    }
    save_text(folder / SPECIAL_TOKENS_FILE, json.dumps(names, indent=2) + "\n")
    inputs = ["input_ids", *["token_type_ids"] * with_token_types, "attention_mask"]
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": sequence_length,
        "model_input_names": inputs,
        "padding_side": "right",
        "truncation_side": "right",
        "clean_up_tokenization_spaces": False,
        **names,
    }
    save_text(folder / TOKENIZER_CONFIG_FILE, json.dumps(config, indent=2) + "\n")


def _tokenizer(words: TextEncoder) -> Tokenizer:
    content = json.loads(words.tokenizer.to_str())
    # Where white space is a token: `TextEncoder` drops what is around a text and around the mask,
    # and puts the joint after the mask.
    has_joint = words.record.joint != ""
    for token in content["added_tokens"]:
        if token["id"] == words.special["mask"]:
            token |= {"lstrip": True, "rstrip": not has_joint}
    tokenizer = Tokenizer.from_str(json.dumps(content))
    if _ids(tokenizer, "a ") != _ids(tokenizer, "a"):
        steps = [normalizers.Strip(left=not has_joint, right=True), tokenizer.normalizer]
        tokenizer.normalizer = normalizers.Sequence([step for step in steps if step is not None])
    cls, sep = (words.tokenizer.id_to_token(words.special[role]) for role in ("cls", "sep"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {sep} $B:1 {sep}:1",
        special_tokens=[(cls, words.special["cls"]), (sep, words.special["sep"])],
    )
    return tokenizer


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


def write_pretrained(folder: Path, pretrained: Pretrained) -> None:
    """Write configuration, weights, tokenizer and the code that is needed."""
    record = ExportRecord(
        name=pretrained.name,
        step=pretrained.step,
        sequence_length=pretrained.sequence_length,
        tokenizer=pretrained.words.record,
        vocabulary=pretrained.words.fingerprint(),
    )
    write_model(folder, pretrained.model, pretrained.weights, record)
    write_tokenizer(
        folder,
        pretrained.words,
        sequence_length=pretrained.sequence_length,
        with_token_types=is_stock_bert(pretrained.model),
    )
