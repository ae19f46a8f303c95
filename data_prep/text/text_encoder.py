"""Encode text as rows of token ids, as the training text was encoded."""

import hashlib
import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from tokenizers import Tokenizer, normalizers
from tokenizers.processors import TemplateProcessing

from data_prep.shards.manifest import TokenizerRecord
from data_prep.text.moses import moses_words
from data_prep.tokenizer.cleaning import (
    CLEANING,
    SINGLE_SPACES,
    clean_text,
    cleans,
    for_clean_text,
)
from data_prep.tokenizer.describe import SpecialNames, TokenizerError, record_of

if TYPE_CHECKING:
    from torch import Tensor

MASK = "[MASK]"  # in the user's text, whatever the name in the tokenizer
# Texts that differ between tokenizers of one vocabulary that lowercase, strip accents or split
# punctuation, and those that do not.
PROBE_TEXTS = ("The", "Zoë's", "naïve", "ÉTÉ", "co-op", "3.5%", "(1,200)", "東京")
SENTENCES = (
    ("The committee met on Tuesday, and nobody could say why.", None),
    ("A list of names is returned in the order of the files.", "Is the order kept?"),
    (f"In winter the lake is covered with {MASK}, which carries a horse and a cart.", None),
    ("Yes.", "They asked whether 3.5 % of 1,200 is 42; it is, and the clerk wrote it down."),
)
# Composed or not, white space of all kinds, and what nobody sees.
HOSTILE = (
    *("cafe\u0301", "\ufb01nal \uff11", "a\x0cb\x1cc\x85d", "a  b\n\n\tc  ", "[UNK]", "Straße İ"),
    *("soft\u00adware \u200eb\ufeff", "می\u200cخواهم 👩\u200d🚀", "ភាសា\u200bខ្មែរ", "हिन्दी がぎ"),
)
RowOf = Callable[[str, str | None], list[int]]  # of a text or a pair
NO_EXPORT = "no model of this tokenizer could be exported: choose another one"
FEW, MANY = 200, 10_000  # random texts: at each start, and where a model is exported


class TextEncoder:
    """A tokenizer with its special tokens, after Moses where the training text had it."""

    def __init__(self, tokenizer: Tokenizer, record: TokenizerRecord) -> None:
        self.tokenizer, self.record = tokenizer, record
        self.special = record.special_tokens
        self._clean = clean_text if cleans(tokenizer) else str
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True  # as in the shards: "[SEP]" in a text is text
        self._encoding = for_clean_text(tokenizer)  # as in builds

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

    def padded(self, rows: Sequence[list[int]]) -> "tuple[Tensor, Tensor]":
        """Return ids_BS, padded to the longest row, and lengths_B."""
        import torch  # builds need none

        lengths = [len(row) for row in rows]
        longest = max(lengths)
        ids = [[*row, *[self.pad] * (longest - len(row))] for row in rows]
        return torch.tensor(ids), torch.tensor(lengths, dtype=torch.int32)

    def exported(self) -> Tokenizer:
        """Return a tokenizer that encodes text as this object does, in any program.

        Two things differ. Moses is no part of it: users must apply it before. White space in front
        of a whole text, which is dropped here, is one space where the joint is a space.
        """
        content = json.loads(self.tokenizer.to_str())
        # White space around a text and around the mask is dropped here, and the joint put after
        # the mask. This matters where white space is a token.
        has_joint, unknown = self.record.joint != "", self.special.get("unk", -1)
        for token in [*content["added_tokens"]]:
            if token["id"] == self.special["mask"]:
                token |= {"lstrip": True, "rstrip": not has_joint}
            if token["id"] == unknown == self.tokenizer.model.token_to_id(token["content"]):
                content["added_tokens"].remove(token)  # "[UNK]" in a text is text, as here
        tokenizer = Tokenizer.from_str(json.dumps(content))
        spaced, bare = (tokenizer.encode(text, add_special_tokens=False) for text in ("a ", "a"))
        steps: list[normalizers.Normalizer] = [SINGLE_SPACES]
        steps = [*CLEANING] if cleans(self.tokenizer) else steps
        steps += [normalizers.Strip(left=not has_joint)] * (spaced.ids != bare.ids)
        steps += [tokenizer.normalizer] * (tokenizer.normalizer is not None)
        tokenizer.normalizer = normalizers.Sequence(steps)
        cls, sep = (self.tokenizer.id_to_token(self.special[role]) for role in ("cls", "sep"))
        tokenizer.post_processor = TemplateProcessing(
            single=f"{cls} $A {sep}",
            pair=f"{cls} $A {sep} $B:1 {sep}:1",
            special_tokens=[(cls, self.special["cls"]), (sep, self.special["sep"])],
        )
        return tokenizer

    def compare(
        self, theirs: RowOf | None = None, *, num_random: int = FEW, fix: str = NO_EXPORT
    ) -> None:
        """Compare rows with those of another program, or of `exported`; Moses is known to differ.

        0 random texts: nor forms of a text that only our tokenizers treat alike.

        Raises:
            TokenizerError: they differ; names a text.
        """
        exported = self.exported()
        theirs = theirs or (lambda *texts: exported.encode(*texts).ids)
        mask = str(self.tokenizer.id_to_token(self.special["mask"]))
        hostile = (*HOSTILE, *_random_texts(num_random)) if num_random else ()
        texts = [*((text, None) for text in (*PROBE_TEXTS, *hostile)), *SENTENCES]
        for first, second in texts if self.record.moses is None else ():
            first = f"a{first}" if self.record.joint else first  # white space before it: known
            found, ours = theirs(first.replace(MASK, mask), second), self.ids(first, second)
            if found != ours:
                raise TokenizerError(
                    f"{first!r} becomes {ours} here and {found} in transformers; {fix}"
                )

    def _row(self, first: list[int], second: list[int] | None, max_length: int) -> list[int]:
        cls, sep = self.special["cls"], self.special["sep"]
        if second is None:
            return [cls, *first[: max_length - 2], sep]
        of_first, of_second, room = len(first), len(second), max_length - 3
        if of_first + of_second > room:
            # Where both are cut and the room is odd, the longer one keeps one more, or the second.
            shorter = min(of_first, of_second, room // 2)
            lengths = shorter, room - shorter
            of_first, of_second = lengths[::-1] if of_first > of_second else lengths
        return [cls, *first[:of_first], sep, *second[:of_second], sep]

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
        text = " ".join(self._clean(text).split())  # as in the shards
        if self.record.moses is not None:
            text = moses_words(text, self.record.moses)
        ids: list[int] = self._encoding.encode(
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
    return TextEncoder(
        tokenizer, record_of(tokenizer, None, kind="loaded", moses=moses, names=names)
    )


def _random_texts(number: int) -> Iterator[str]:
    """Yield short texts of letters, marks, white space and controls of all scripts."""
    generator = random.Random(0)
    every = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x20000)]))
    often = "aB \t\x0c\x1c.,\u0301\u0308\u200b\u200c\u200d\ufeff中กាក가"
    for _ in range(number):
        kinds = generator.choices((often, every), k=generator.randint(1, 8))
        yield "".join(map(generator.choice, kinds))
