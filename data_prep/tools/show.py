"""Show rows as text, before and after masking."""

import textwrap
from collections.abc import Collection, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from data_prep.masking import IGNORED, Masking, MaskingKind, mask_rows
from data_prep.shards.format import ShardSet
from data_prep.shards.manifest import SpecialToken, SplitName, summary
from data_prep.tokenizer.describe import described_tokenizer, word_starts

WIDTH = 96


def shown_rows(
    shards: ShardSet, name: SplitName, *, count: int, seed: int, masking: MaskingKind = "tokens"
) -> Iterator[str]:
    """Yield lines that show rows spread over a split, before and after masking.

    Raises:
        TokenizerError: Words are to be masked and the tokens do not mark where a word starts, or
            the tokenizer is damaged.
    """
    manifest, rows = shards.manifest, shards.split(name)
    tokenizer = described_tokenizer(shards.tokenizer_path, manifest.tokenizer)
    pieces = _Pieces(tokenizer, manifest.tokenizer.special_tokens)
    numbers = np.unique(np.linspace(0, rows.num_rows - 1, count).astype(int))
    original = rows.rows(numbers)
    starts = None if masking == "tokens" else word_starts(tokenizer)
    masked = mask_rows(
        original,
        numbers,
        seed=seed,
        epoch=0,
        tokenizer=manifest.tokenizer,
        masking=Masking(masking, word_starts=starts),
    )
    yield f"{shards.folder}: {manifest.source}\n{summary(manifest)}"
    mask = pieces.text_of(manifest.tokenizer.special_tokens["mask"]).strip()
    yield f"Hidden words are {mask}, {{replaced by a random one}} or {{left}}; all are predicted."
    for number, before, after, positions, labels in zip(numbers, original, *masked, strict=True):
        places = positions[labels != IGNORED].tolist()
        answers = (f"{pieces.text_of(before[place]).strip()} ({place})" for place in places)
        yield f"\n{name} row {number}"
        yield _wrapped("text", pieces.text(before, marked=()))
        yield _wrapped("masked", pieces.text(after, marked=places))
        yield _wrapped("answers", ", ".join(answers))


class _Pieces:
    """The text of tokens, by the decoder of their tokenizer."""

    def __init__(self, tokenizer: Tokenizer, special_tokens: Mapping[SpecialToken, int]) -> None:
        self._tokenizer = tokenizer
        self._special = set(special_tokens.values())
        self._mask_id = special_tokens["mask"]
        self._anchor = self._plain_word()

    def text_of(self, *tokens: int) -> str:
        """Return the text of tokens after another word: " word", "ing", " [MASK]"."""
        if self._anchor is None or not self._special.isdisjoint(tokens):
            return "".join(f" {self._tokenizer.id_to_token(token) or '?'}" for token in tokens)
        alone, together = self._decoded(self._anchor), self._decoded(self._anchor, *tokens)
        return together.removeprefix(alone)

    def text(self, ids: NDArray[np.integer], *, marked: Collection[int]) -> str:
        """Return a row with braces around the tokens at some columns, but not around [MASK].

        Tokens between these columns are decoded together: one alone may be half a character.
        """
        texts, run = [], []
        for place, token in enumerate(ids.tolist()):
            if place not in marked and token not in self._special:
                run.append(token)
                continue
            texts.append(self.text_of(*run))
            run = []
            text = self.text_of(token)
            if place in marked and token != self._mask_id:
                bare = text.lstrip()
                text = f"{text[: len(text) - len(bare)]}{{{bare}}}"
            texts.append(text)
        return "".join([*texts, self.text_of(*run)]).strip()

    def _decoded(self, *ids: int) -> str:
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=False)
        return text

    def _plain_word(self) -> int | None:
        """Return a token that other tokens can follow, such as "a"."""
        for token in range(self._tokenizer.get_vocab_size()):
            text = self._tokenizer.id_to_token(token)
            if token not in self._special and text and text.isascii() and text.isalpha():
                return token
        return None


def _wrapped(title: str, text: str) -> str:
    first, rest = f"  {title:<9}", " " * 11
    return textwrap.fill(text, WIDTH, initial_indent=first, subsequent_indent=rest)
