"""Output of WikiExtractor: articles as <doc id="..." url="..." title="..."> ... </doc>."""

import contextlib
import html
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from data_prep.sources.source import DamagedFile, Document, FileSource, Skipped, paragraphs_of
from data_prep.sources.streams import numbered_lines, opened_text
from data_prep.sources.text import decoded, parts_of

BEGINNING_OF_ARTICLE = b"<doc "
WITHOUT_END = "article without </doc>"


@dataclass(frozen=True)
class WikiExtractorFiles(FileSource):
    """Articles without markup, one paragraph a line; the first one repeats the title."""

    kind = "WikiExtractor files"
    unit = "lines"
    licence = "CC BY-SA 4.0 (Wikipedia)"

    def records(self, file: Path) -> Iterator[Document | Skipped]:
        """Yield the lines of each article, beginning with its <doc> line."""
        article: list[bytes] = []
        first, is_outside = 0, False  # is_outside: reported, once for consecutive lines
        with opened_text(file) as (stream, read_bytes):
            try:
                for number, line in numbered_lines(stream):
                    opens, ends = line.startswith(BEGINNING_OF_ARTICLE), line.startswith(b"</doc>")
                    if opens or (ends and article):
                        if opens and article:
                            yield Skipped(str(file), first, WITHOUT_END)
                        yield from _parts(article, file, first, read_bytes())
                        article, first, is_outside = [line] * opens, number, False
                    elif article:
                        article.append(line)
                    elif not (is_outside or ends or line.isspace()):
                        yield Skipped(str(file), number, "text outside of <doc> and </doc>")
                        is_outside = True
            except DamagedFile:
                yield from _parts(article, file, first, read_bytes())
                raise
            if article:
                yield Skipped(str(file), first, WITHOUT_END)
            yield from _parts(article, file, first, read_bytes())

    def paragraphs(self, document: Document) -> list[str]:
        """Return the lines that are not blank, without the title."""
        text, title = document.text, ""
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


def _parts(article: list[bytes], file: Path, first: int, read_bytes: int) -> Iterator[Document]:
    """Yield an article, in several parts if it is too long."""
    for part in parts_of(enumerate(article, start=first), "file"):
        yield decoded(part, file, read_bytes)
