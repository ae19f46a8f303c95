"""Clean documents: Unicode form, characters without meaning, and filters, each of them counted."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

from data_prep.settings import TextSettings

# Controls but the ones that are white space; soft hyphen, zero-width space, byte-order mark and
# noncharacters. Zero-width joiners stay: Persian, Indic scripts and emoji need them.
_MEANINGLESS = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u200b\ufeff\ufdd0-\ufdef\ufffe\uffff]"
)


def clean(paragraphs: Iterable[str], settings: TextSettings, counts: Counter[str]) -> list[str]:
    """Return what is left of a document; nothing where it is too short.

    De-duplication is not done here: it needs all documents.

    Args:
        paragraphs: One line of text each.
        settings: Which steps to take.
        counts: What was changed and left out is added here.
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
    """Return the paragraph after each step, or an empty string where it is dropped."""
    form = settings.unicode_form
    if form != "none" and not unicodedata.is_normalized(form, paragraph):
        counts[f"paragraphs normalised to {form}"] += 1
        # NFKC makes spaces of other characters.
        paragraph = " ".join(unicodedata.normalize(form, paragraph).split())
    if settings.remove_control_characters and _MEANINGLESS.search(paragraph):
        counts["paragraphs with control characters removed"] += 1
        paragraph = " ".join(_MEANINGLESS.sub("", paragraph).split())
    if (
        settings.min_letter_ratio
        and paragraph
        and (letter_ratio(paragraph) < settings.min_letter_ratio)
    ):
        counts["paragraphs dropped: few letters"] += 1
        return ""
    return paragraph
