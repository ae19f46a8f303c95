"""Properties of a tokenizer: special tokens, joint of sentences, word starts, vocabulary size.

The manifest records them, and readers of shards check a tokenizer.json against that record.
Pre-training imports this module, so it needs no library but tokenizers.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from data_prep.files.errors import UserError
from data_prep.files.quoting import plain, quoted
from data_prep.shards.manifest import SpecialToken, TokenizerKind, TokenizerRecord, sha256_of

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CONTINUATION = "##"

SpecialNames = dict[SpecialToken, str]
LARGEST_ID = 1 << 26  # the library needs memory for every number below the largest id

# BERT and ELECTRA; RoBERTa and XLM-R; ESM.
_KNOWN_NAMES: dict[SpecialToken, tuple[str, ...]] = {
    "pad": (PAD, "<pad>"),
    "unk": (UNK, "<unk>"),
    "cls": (CLS, "<s>", "<cls>"),
    "sep": (SEP, "</s>", "<sep>", "<eos>"),
    "mask": (MASK, "<mask>"),
}
_PROBES = (("one", "two"), ("The end.", "Another one"), ("a b c", '"Quoted"'), ("1", "2"))


class TokenizerError(UserError):
    """A tokenizer cannot be loaded or used: one line with the reason and the remedy."""


def record_of(
    tokenizer: Tokenizer,
    file: Path | None,
    *,
    kind: Literal[TokenizerKind, "loaded"],
    moses: str | None = None,
    names: SpecialNames | None = None,
) -> TokenizerRecord:
    """Return the record of a tokenizer for the manifest.

    `names` are those of special tokens that differ from the well-known ones.

    Raises:
        TokenizerError: A special token is missing, or sentences cannot be joined.
    """
    return TokenizerRecord(
        kind=kind,
        sha256=sha256_of(file) if file else "",
        vocabulary_size=vocabulary_size(tokenizer),
        special_tokens=special_tokens_of(tokenizer, names or {}),
        joint=joint_of(tokenizer),
        moses=moses,
    )


def read_tokenizer(file: Path) -> Tokenizer:
    """Read a tokenizer.json.

    Raises:
        TokenizerError: It is not one, has an id that is too large, or its model lacks the token
            that it gives to what it does not know.
    """
    try:
        tokenizer = Tokenizer.from_buffer(file.read_bytes())
    except OSError as error:
        raise TokenizerError(f"{file} cannot be read: {error.strerror}") from None
    except Exception as error:  # the library raises no narrower class
        raise TokenizerError(f"{file}: not a tokenizer.json ({plain(str(error))})") from error
    if (size := vocabulary_size(tokenizer)) > LARGEST_ID:
        raise TokenizerError(f"{file}: has ids up to {size - 1:,}, more than {LARGEST_ID:,}")
    tokenizer = _fixed(tokenizer, file)
    unknown = getattr(tokenizer.model, "unk_token", None)  # not of Unigram
    if unknown and tokenizer.model.token_to_id(unknown) is None:
        raise TokenizerError(f"{file}: unk_token is {quoted(unknown)}, which has no id; add it")
    return tokenizer


def holes_of(tokenizer: Tokenizer) -> NDArray[np.integer]:
    """Return the ids below the size of the vocabulary that have no entry, ascending."""
    entries = list(tokenizer.get_vocab(with_added_tokens=True).values())
    return np.setdiff1d(np.arange(vocabulary_size(tokenizer)), entries)


def _fixed(tokenizer: Tokenizer, file: Path) -> Tokenizer:
    """Return a tokenizer without what would give one text several encodings."""
    content, is_entry = json.loads(tokenizer.to_str()), tokenizer.model.token_to_id
    before = json.dumps(content)
    if dropout := content["model"].get("dropout"):
        print(f"note: {file}: dropout={dropout} of BPE is switched off", file=sys.stderr)
        content["model"]["dropout"] = None
    for token in [*content["added_tokens"]]:
        # Spaces are single before text is encoded, but not in transformers: others must not occur.
        if token["content"].isspace() and is_entry(token["content"]) is None:
            token |= {"content": f"<white_space_{token['id']}>", "normalized": False}
        elif token["content"].isspace() and token["content"] != " ":  # an entry it stays
            content["added_tokens"].remove(token)
    step = content["pre_tokenizer"] or {}
    for part in (step, *step.get("pretokenizers", [])):
        if part.get("prepend_scheme") == "first":  # a part after a mask is a first one here
            part["prepend_scheme"] = "always"
    after = json.dumps(content)
    return tokenizer if after == before else Tokenizer.from_str(after)


def special_tokens_of(tokenizer: Tokenizer, names: SpecialNames) -> dict[SpecialToken, int]:
    """Return the ids of the special tokens, by the given names or by well-known ones.

    "unk" may be missing in byte-level tokenizers, which encode every text.

    Raises:
        TokenizerError: One is missing, or two have the same id.
    """
    found: dict[SpecialToken, int] = {}
    missing = []
    for role in get_args(SpecialToken):
        candidates = (names[role],) if role in names else _KNOWN_NAMES[role]
        ids = [number for number in map(tokenizer.token_to_id, candidates) if number is not None]
        if ids:
            found[role] = ids[0]
        elif role != "unk" or not _is_byte_level(tokenizer):
            missing.append(f"no {role} token ({' or '.join(candidates)})")
    if missing:
        raise TokenizerError(
            f"the tokenizer has {', '.join(missing)}; choose one made for masked language models, "
            "or add what is missing to its tokenizer.json"
        )
    first = {number: role for role, number in reversed(found.items())}
    for role, number in found.items():
        if first[number] != role:
            raise TokenizerError(
                f"the tokenizer uses {tokenizer.id_to_token(number)} both as {first[number]} and "
                f"as {role}; they must differ"
            )
    return found


def joint_of(tokenizer: Tokenizer) -> Literal["", " "]:
    """Return the prefix with which a sentence is encoded as it is after another sentence.

    Raises:
        TokenizerError: Neither an empty prefix nor a space gives the tokens of the whole text.
    """
    joints: tuple[Literal["", " "], ...] = ("", " ")
    # Of entries with a space inside: they must not join the end of a sentence to the next one.
    entries = tokenizer.get_vocab(with_added_tokens=False)
    pairs = (re.sub("[▁Ġ]", " ", one).strip().partition(" ") for one in entries)
    probes = [*_PROBES, *((first, second) for first, space, second in pairs if space)]
    for joint in joints:
        if all(
            ids_of(tokenizer, f"{first} {second}")
            == ids_of(tokenizer, first) + ids_of(tokenizer, joint + second)
            for first, second in probes
        ):
            return joint
    raise TokenizerError(
        "the tokenizer encodes a sentence differently alone than after another one, with or "
        "without a space before it; documents cannot be encoded by sentences: choose another one"
    )


def vocabulary_size(tokenizer: Tokenizer) -> int:
    """Return the highest id + 1, unused ids included.

    Raises:
        TokenizerError: There are no entries.
    """
    ids = tokenizer.get_vocab(with_added_tokens=True).values()
    if not ids:
        raise TokenizerError("the tokenizer has no entries")
    return max(ids) + 1


def word_starts(tokenizer: Tokenizer) -> NDArray[np.bool_]:
    """Return whether each token starts a word [vocabulary size]; added tokens do.

    Raises:
        TokenizerError: The tokens do not mark where a word starts.
    """
    description = json.loads(tokenizer.to_str())
    model, vocabulary = description["model"], tokenizer.get_vocab(with_added_tokens=True)
    prefix = model.get("continuing_subword_prefix")
    if prefix:
        starting = {token for token in vocabulary if not token.startswith(prefix)}
    elif _is_byte_level(tokenizer):
        # The bytes of space and line feed, as this kind of tokenizer writes them, and the first of
        # a hanzi (U+4000 to U+9FFF).
        starting = {token for token in vocabulary if token.startswith(("Ġ", "Ċ", *"äåæçèé"))}
    elif "Metaspace" in _types_in(description["pre_tokenizer"]):
        starting = {one for one in vocabulary if one[:1] == "▁" or "\u4e00" <= one[:1] <= "\u9fff"}
    else:
        raise TokenizerError(
            f"the tokens of this {model['type']} tokenizer do not mark where a word starts (no "
            "continuation prefix such as ##, no mark such as Ġ or ▁); use masking=tokens"
        )
    starting.update(str(token) for token in SPECIAL_TOKENS if token in vocabulary)
    starting.update(token.content for token in tokenizer.get_added_tokens_decoder().values())
    starts = np.zeros(vocabulary_size(tokenizer), bool)
    starts[[vocabulary[token] for token in starting]] = True
    return starts


def ids_of(tokenizer: Tokenizer, text: str) -> list[int]:
    """Return the ids of a text, without special tokens around it."""
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


def _is_byte_level(tokenizer: Tokenizer) -> bool:
    return "ByteLevel" in _types_in(json.loads(tokenizer.to_str())["pre_tokenizer"])


def _types_in(step: dict[str, Any] | None) -> set[str]:
    """Return the types of a step and of its nested steps."""
    if step is None:
        return set()
    parts = (_types_in(part) for part in step.get("pretokenizers", []))
    return {step["type"]}.union(*parts)
