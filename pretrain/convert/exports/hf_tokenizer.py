"""Write a tokenizer as files that transformers' AutoTokenizer loads."""

import json
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, normalizers, processors

from data_prep.files.atomic import save_text
from data_prep.shards.manifest import TOKENIZER_FILE
from pretrain.convert.text_encoder import TextEncoder

TOKENIZER_CLASS = "PreTrainedTokenizerFast"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"


def write_tokenizer(
    folder: Path, text_encoder: TextEncoder, *, sequence_length: int, with_token_types: bool
) -> None:
    """Write the files of transformers' AutoTokenizer, which encodes text as `TextEncoder` does.

    Two things differ. Moses is no part of these files: users must apply it before. White space in
    front of a whole text, which `TextEncoder` drops, is one space where the joint is a space.

    Args:
        folder: where the files go.
        text_encoder: of the model.
        sequence_length: to which truncation=True cuts rows.
        with_token_types: whether the model takes token types, as BERT and ELECTRA do.
    """
    save_text(folder / TOKENIZER_FILE, _tokenizer(text_encoder).to_str(pretty=True) + "\n")
    names = {
        f"{role}_token": text_encoder.tokenizer.id_to_token(number)
        for role, number in text_encoder.special.items()
    }
    inputs = ["input_ids", *["token_type_ids"] * with_token_types, "attention_mask"]
    config: dict[str, Any] = {
        "tokenizer_class": TOKENIZER_CLASS,
        "model_max_length": sequence_length,
        "model_input_names": inputs,
        "padding_side": "right",
        "truncation_side": "right",
        "clean_up_tokenization_spaces": False,
        **names,
    }
    save_text(folder / TOKENIZER_CONFIG_FILE, json.dumps(config, indent=2) + "\n")


def _tokenizer(text_encoder: TextEncoder) -> Tokenizer:
    content = json.loads(text_encoder.tokenizer.to_str())
    # `TextEncoder` drops white space around a text and around the mask, makes one space of it
    # inside, and puts the joint after the mask. This matters where white space is a token.
    has_joint = text_encoder.record.joint != ""
    for token in content["added_tokens"]:
        if token["id"] == text_encoder.special["mask"]:
            token |= {"lstrip": True, "rstrip": not has_joint}
    tokenizer = Tokenizer.from_str(json.dumps(content))
    with_space, without = (tokenizer.encode(text, add_special_tokens=False) for text in ("a ", "a"))
    if with_space.ids != without.ids:
        steps = [
            normalizers.Replace(Regex(r"\s+"), " "),
            normalizers.Strip(left=not has_joint, right=True),
            tokenizer.normalizer,
        ]
        tokenizer.normalizer = normalizers.Sequence([step for step in steps if step is not None])
    cls, sep = (
        text_encoder.tokenizer.id_to_token(text_encoder.special[role]) for role in ("cls", "sep")
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {sep} $B:1 {sep}:1",
        special_tokens=[(cls, text_encoder.special["cls"]), (sep, text_encoder.special["sep"])],
    )
    return tokenizer
