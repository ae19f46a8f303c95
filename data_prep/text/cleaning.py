"""Clean documents: Unicode form, control characters and filters, each counted."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

from data_prep.settings import TextSettings

# Control characters except white space; soft hyphen, zero-width space, byte-order mark and
# noncharacters. Zero-width joiners stay: Persian, Indic scripts and emoji need them.
_CONTROLS = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u200b\ufeff\ufdd0-\ufdef\ufffe\uffff]"
)


def clean(paragraphs: Iterable[str], settings: TextSettings, counts: Counter[str]) -> list[str]:
    """Return the cleaned paragraphs of a document; an empty list if it is dropped.

    De-duplication is a later step: it needs all documents.

    Args:
        paragraphs: One line of text each.
        settings: The steps and their thresholds.
        counts: Incremented for each change and each drop, by name.
    """
    kept = []
    for paragraph in paragraphs:
        cleaned = _clean_paragraph(paragraph, settings, counts)
        if cleaned:
            kept.append(cleaned)
    num_characters = sum(map(len, kept))
    if kept and num_characters < settings.min_document_characters:
        counts["documents dropped: too short"] += 1
        return []
    return kept


def letter_ratio(paragraph: str) -> float:
    """Return the share of characters that are letters, marks or spaces."""
    letters = sum(
        character.isspace() or unicodedata.category(character)[0] in "LM" for character in paragraph
    )
    return letters / len(paragraph)


def _clean_paragraph(paragraph: str, settings: TextSettings, counts: Counter[str]) -> str:
    """Return the cleaned paragraph, or an empty string if it is dropped."""
    # First: characters on the two sides of what is removed may combine.
    if settings.remove_control_characters and _CONTROLS.search(paragraph):
        counts["paragraphs with control characters removed"] += 1
        paragraph = " ".join(_CONTROLS.sub("", paragraph).split())
    form = settings.unicode_form
    if form != "none" and not unicodedata.is_normalized(form, paragraph):
        counts[f"paragraphs normalised to {form}"] += 1
        # NFKC turns some other characters into spaces.
        paragraph = " ".join(unicodedata.normalize(form, paragraph).split())
    if (
        settings.min_letter_ratio
        and paragraph
        and (letter_ratio(paragraph) < settings.min_letter_ratio)
    ):
        counts["paragraphs dropped: few letters"] += 1
        return ""
    return paragraph
