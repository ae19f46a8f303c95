"""Encode text as rows of token ids, as the training text was encoded."""

import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from tokenizers import Tokenizer
from torch import Tensor

from data_prep.shards.manifest import TOKENIZER_FILE, TokenizerRecord
from data_prep.text.moses import moses_words
from data_prep.tokenizer.describe import SpecialNames, record_of

MASK = "[MASK]"  # in the user's text, whatever the name in the tokenizer
# Texts that differ between tokenizers of one vocabulary that lowercase, strip accents or split
# punctuation, and those that do not.
PROBE_TEXTS = ("The", "Zoë's", "naïve", "ÉTÉ", "co-op", "3.5%", "(1,200)", "東京")


class TextEncoder:
    """A tokenizer with its special tokens, after Moses where the training text had it."""

    def __init__(self, tokenizer: Tokenizer, record: TokenizerRecord) -> None:
        self.tokenizer, self.record = tokenizer, record
        self.special = record.special_tokens
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True  # as in the shards: "[SEP]" in a text is text

    @property
    def pad(self) -> int:
        """Return the id of padding; attention ignores it, so 0 serves where there is none."""
        return self.special.get("pad", 0)

    def fingerprint(self) -> str:
        """Return a hash of all entries with their ids."""
        entries = self.tokenizer.get_vocab(with_added_tokens=True)
        return hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()

    def ids(
        self, first: str, second: str | None = None, *, max_length: int = sys.maxsize
    ) -> list[int]:
        """Return the row of `pair_ids`, with the mask token for each [MASK] of the texts."""
        return self._row(
            self._tokens_and_masks(first),
            None if second is None else self._tokens_and_masks(second),
            max_length,
        )

    def pair_ids(self, first: str, second: str | None = None, *, max_length: int) -> list[int]:
        """Return [CLS] first [SEP], and second [SEP] where there is one.

        Rows that are too long lose tokens at the end of the longer text until both are equally
        long, as with `longest_first` of the tokenizers library. "[MASK]" in a text is text.
        """
        return self._row(
            self._tokens(first), None if second is None else self._tokens(second), max_length
        )

    def padded(self, rows: Sequence[list[int]]) -> tuple[Tensor, Tensor]:
        """Return ids_BS, padded to the longest row, and lengths_B."""
        lengths = [len(row) for row in rows]
        longest = max(lengths)
        ids = [[*row, *[self.pad] * (longest - len(row))] for row in rows]
        return torch.tensor(ids), torch.tensor(lengths, dtype=torch.int32)

    def _row(self, first: list[int], second: list[int] | None, max_length: int) -> list[int]:
        cls, sep = self.special["cls"], self.special["sep"]
        if second is None:
            return [cls, *first[: max_length - 2], sep]
        kept_first, kept_second = kept_lengths(len(first), len(second), max_length - 3)
        return [cls, *first[:kept_first], sep, *second[:kept_second], sep]

    def _tokens_and_masks(self, text: str) -> list[int]:
        ids: list[int] = []
        for number, part in enumerate(text.split(MASK)):
            if number:
                ids.append(self.special["mask"])
            # A comma right after the mask is tokenized as right after a word; Moses separates it.
            follows_space = number > 0 and (part[:1].isspace() or self.record.moses is not None)
            ids += self._tokens(part, joint=self.record.joint if follows_space else "")
        return ids

    def _tokens(self, text: str, *, joint: str = "") -> list[int]:
        text = " ".join(text.split())  # as in the shards
        if self.record.moses is not None:
            text = moses_words(text, self.record.moses)
        ids: list[int] = self.tokenizer.encode(
            joint + text if text else text, add_special_tokens=False
        ).ids
        return ids


def text_encoder_of(
    tokenizer: Tokenizer, names: SpecialNames, *, moses: str | None = None
) -> TextEncoder:
    """Return the text encoder of an external tokenizer.

    Args:
        tokenizer: in the state in which it is used.
        names: of special tokens with unusual names.
        moses: language of the Moses steps before it; None: no such steps.

    Raises:
        TokenizerError: a special token is missing, or sentences cannot be joined.
    """
    with TemporaryDirectory() as folder:
        file = Path(folder) / TOKENIZER_FILE
        tokenizer.save(str(file))
        record = record_of(tokenizer, file, kind="loaded", moses=moses, names=names)
    return TextEncoder(tokenizer, record)


def kept_lengths(first: int, second: int, room: int) -> tuple[int, int]:
    """Return the lengths of two texts cut to `room` tokens together, always from the longer one.

    If both are cut and the room is odd, the longer text keeps one token more, at a tie the second.
    """
    if first + second <= room:
        return first, second
    shorter = min(first, second, room // 2)
    return (room - shorter, shorter) if first > second else (shorter, room - shorter)
