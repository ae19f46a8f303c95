"""Output of WikiExtractor: articles as <doc id="..." url="..." title="..."> ... </doc>."""

import contextlib
import html
from dataclasses import dataclass
from typing import Literal

from data_prep.sources.places import BEGINNING_OF_ARTICLE
from data_prep.sources.source import Document, paragraphs_of
from data_prep.sources.text import TextFiles


@dataclass(frozen=True)
class WikiExtractorFiles(TextFiles):
    """Articles without markup, one paragraph a line; the first one repeats the title."""

    documents: Literal["article"] = "article"  # type: ignore[assignment]

    kind = "WikiExtractor files"
    licence = "CC BY-SA 4.0 (Wikipedia)"
    is_wikipedia = True

    def paragraphs(self, document: Document) -> list[str]:
        """Return the lines that are not blank, without the title."""
        text, title = document.text.removesuffix("</doc>"), ""
        if text.startswith(BEGINNING_OF_ARTICLE.decode()):
            opening, _, text = text.partition("\n")
            # Not a regular expression: quotes and brackets in titles are not escaped.
            title = opening.partition(' title="')[2].rpartition('"')[0]
        with contextlib.suppress(ValueError):  # an entity of more than 4,300 digits
            text, title = html.unescape(text), html.unescape(title)
        paragraphs = paragraphs_of(text)
        if title and paragraphs[:1] == paragraphs_of(title):
            del paragraphs[0]
        return paragraphs
