"""Clean paragraphs: control characters and Unicode form, each change counted."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

# Control characters except white space; soft hyphen, zero-width space, byte-order mark and
# noncharacters. Zero-width joiners stay: Persian, Indic scripts and emoji need them.
_CONTROLS = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u200b\ufeff\ufdd0-\ufdef\ufffe\uffff]"
)


def clean(paragraphs: Iterable[str], counts: Counter[str]) -> list[str]:
    """Return paragraphs without control characters and in the form NFC; empty ones are dropped.

    Args:
        paragraphs: One line of text each.
        counts: Incremented for each change, by name.
    """
    kept = []
    for paragraph in paragraphs:
        # First: characters on the two sides of what is removed may combine.
        if _CONTROLS.search(paragraph):
            counts["paragraphs with control characters removed"] += 1
            paragraph = " ".join(_CONTROLS.sub("", paragraph).split())
        if not unicodedata.is_normalized("NFC", paragraph):
            counts["paragraphs normalised to NFC"] += 1
            paragraph = " ".join(unicodedata.normalize("NFC", paragraph).split())
        if paragraph:
            kept.append(paragraph)
    return kept
