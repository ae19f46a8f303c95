"""Output of WikiExtractor: articles as <doc id="..." url="..." title="..."> ... </doc>.

Articles longer than `LONGEST_DOCUMENT` are yielded in parts, as documents of plain text are.
"""

import html
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from data_prep.sources.lines import cut_lines, opened_text
from data_prep.sources.source import (
    DamagedFile,
    FileRecord,
    FileSource,
    Parsed,
    RawDocument,
    Skipped,
    paragraphs_of,
)
from data_prep.sources.text import LONGEST_DOCUMENT, decoded

BEGINNING_OF_ARTICLE = b"<doc "
_END_OF_ARTICLE = b"</doc>"
_LINE_FEED = ord("\n")


@dataclass(frozen=True)
class WikiExtractorFiles(FileSource):
    """Articles without markup, one paragraph a line; the first one repeats the title."""

    kind = "WikiExtractor files"
    unit = "lines"

    @property
    def licence(self) -> str:
        """Return Wikipedia's licence."""
        return "CC BY-SA 4.0 (Wikipedia)"

    def records(self, file: Path) -> Iterator[FileRecord | Skipped]:
        """Yield the undecoded lines of each article, beginning with its <doc> line."""
        parts = _Parts(LONGEST_DOCUMENT)
        first = 0  # line of the current article, 0 between articles
        is_reported = False
        with opened_text(file) as (stream, read_bytes):
            try:
                for number, line, begins in cut_lines(stream, LONGEST_DOCUMENT):
                    opens = begins and line.startswith(BEGINNING_OF_ARTICLE)
                    if opens and first:
                        yield Skipped(str(file), first, "article without </doc>")
                    if opens or (first and begins and line.startswith(_END_OF_ARTICLE)):
                        if found := parts.end():
                            yield FileRecord(*found, read_bytes())
                        first, is_reported = (number if opens else 0), False
                    if first:
                        if found := parts.add(number, line):
                            yield FileRecord(*found, read_bytes(), cut=True)
                    elif (
                        not is_reported
                        and not line.isspace()
                        and not line.startswith(_END_OF_ARTICLE)
                    ):
                        yield Skipped(str(file), number, "text outside of <doc> and </doc>")
                        is_reported = True  # once for consecutive lines
            except DamagedFile:
                if found := parts.end():
                    yield FileRecord(*found, read_bytes())
                raise
            if first:
                yield Skipped(str(file), first, "article without </doc>")
            if found := parts.end():
                yield FileRecord(*found, read_bytes())

    def parse(self, raw: RawDocument) -> Parsed:
        """Return the lines that are not blank, without the title."""
        text, skipped = decoded(raw)
        title = None
        if raw.content.startswith(BEGINNING_OF_ARTICLE):
            opening, _, text = text.partition("\n")
            # Not a regular expression: quotes and brackets in titles are not escaped.
            title = opening.partition(' title="')[2].rpartition('"')[0]
        paragraphs = paragraphs_of(_unescaped(text))
        if title and paragraphs[:1] == paragraphs_of(_unescaped(title)):
            del paragraphs[0]
        return Parsed(paragraphs, skipped)


def _unescaped(text: str) -> str:
    """Return text with HTML entities replaced by their characters."""
    try:
        return html.unescape(text)
    except ValueError:  # an entity of more than 4,300 digits
        return text


class _Parts:
    """The lines of the current article, split into parts of bounded size."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._lines: list[bytes] = []
        self._size = self._first = 0

    def add(self, number: int, line: bytes) -> tuple[bytes, int] | None:
        """Add a line; return content and first line of the part that ends before it, if one does.

        A part ends before a line with words, so that it is never the last one.
        """
        part = None
        if line.isspace():
            # Of blank lines only the line feed is kept, for the line numbers that follow.
            if not self._lines or self._size >= self._longest:
                return None
            line = b"\n" if line[-1] == _LINE_FEED else b" "
        elif self._lines and self._size + len(line) > self._longest:
            part = self.end()
        if not self._lines:
            self._first = number
        self._lines.append(line)
        self._size += len(line)
        return part

    def end(self) -> tuple[bytes, int] | None:
        """Return content and first line of the rest of the document, and start the next one."""
        if not self._lines:
            return None
        part = b"".join(self._lines), self._first
        self._lines, self._size = [], 0
        return part
