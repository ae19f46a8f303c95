"""Cleaning of text, as steps of a tokenizer: builds, encoders and exports make the same ids."""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from typing import Any

from tokenizers import Regex, Tokenizer, normalizers

# Of Thai, Lao, Tibetan, Myanmar, Khmer, where zero-width spaces are those between words.
_UNSPACED = "[\u0e00-\u109f\u1780-\u17ff]"
SEPARATING = f"(?<={_UNSPACED})\u200b|\u200b(?={_UNSPACED})"
# Controls, soft hyphen, zero-width space, marks of direction, byte-order mark, noncharacters. White
# space stays, and joiners, which Persian, Indic scripts and emoji need.
INVISIBLE = (
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f"
    "\ufeff\ufdd0-\ufdef\ufffe\uffff]"
)
# What Python calls white space, more than the library does. A single space stays.
_WHITE = "\t-\r\x1c-\x1f\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
SINGLE_SPACES = normalizers.Replace(Regex(f"[{_WHITE}][ {_WHITE}]*| [ {_WHITE}]+"), " ")
CLEANING = (
    normalizers.Replace(Regex(SEPARATING), " "),
    # Before NFC: characters on the two sides of what is removed may combine.
    normalizers.Replace(Regex(INVISIBLE), ""),
    normalizers.NFC(),
    SINGLE_SPACES,
)
# Of letters to which they are accents; those of other scripts are vowels, tones and the like.
STRIPPING = (
    normalizers.NFD(),
    normalizers.Replace(Regex(r"(?<=[\p{Latin}\p{Greek}\p{Cyrillic}])\p{Mn}+"), ""),
    normalizers.NFC(),
)
_WHOLE = normalizers.Sequence(list(CLEANING))
_REMOVED = re.compile(f"{SEPARATING}|{INVISIBLE}")


def clean(paragraphs: Iterable[str], counts: Counter[str]) -> list[str]:
    """Return the paragraphs, cleaned, without empty ones, and count each kind of change."""
    kept = []
    for paragraph in paragraphs:
        if _REMOVED.search(paragraph):
            counts["paragraphs with control characters removed"] += 1
        if not unicodedata.is_normalized("NFC", paragraph):
            counts["paragraphs normalised to NFC"] += 1
        if cleaned := clean_text(paragraph):
            kept.append(cleaned)
    return kept


def clean_text(text: str) -> str:
    """Return a text on one line: NFC, single spaces, nothing invisible but joiners."""
    if text.isascii() and text.isprintable():
        return " ".join(text.split())
    return str(_WHOLE.normalize_str(text)).strip()


def cleans(tokenizer: Tokenizer) -> bool:
    """Return whether a tokenizer cleans its text; those of earlier versions do not."""
    return _steps(tokenizer.normalizer)[: len(CLEANING)] == _steps(_WHOLE)


def add_cleaning(tokenizer: Tokenizer) -> None:
    """Let a tokenizer clean its text."""
    if not cleans(tokenizer):
        own = [tokenizer.normalizer] * (tokenizer.normalizer is not None)
        tokenizer.normalizer = normalizers.Sequence([*CLEANING, *own])


def own_normalizer(tokenizer: Tokenizer) -> Any:
    """Return what a tokenizer does to a text beside the cleaning; None: it has no normalizer."""
    whole = tokenizer.normalizer
    if not cleans(tokenizer):
        return whole
    return normalizers.Sequence([whole[n] for n in range(len(CLEANING), len(whole))])


def _steps(normalizer: Any) -> list[Any]:
    return list(json.loads(normalizer.__getstate__()).get("normalizers", [])) if normalizer else []
