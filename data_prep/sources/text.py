"""Plain text, and what WikiExtractor makes of a Wikipedia dump."""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from data_prep.sources.lines import lines_of
from data_prep.sources.source import FileSource, Parsed, RawDocument, Record, Skipped

LONGEST_LINE = 1 << 20  # bytes; a longer one is read as several paragraphs
LONGEST_DOCUMENT = 1 << 20  # bytes; a longer one is handed out in parts
LONGEST_ARTICLE = 1 << 24  # bytes; more can only be articles whose ends are missing

DocumentEnd = Literal["blank_line", "line", "file"]

_DOC_BEGINS = re.compile(rb"<doc\b[^>]*>\s*$")
_TITLE = re.compile(rb'\btitle="([^"]*)"')
_DOC_ENDS = b"</doc>"


@dataclass(frozen=True)
class TextFiles(FileSource):
    """UTF-8 text, one paragraph a line; every file begins a document of its own."""

    documents: DocumentEnd = "blank_line"

    kind = "text files"

    def records(self, file: Path) -> Iterator[Record | Skipped]:
        """Yield the undecoded lines of each document."""
        lines: list[bytes] = []
        first = size = read_bytes = 0
        for line in lines_of(file, longest=LONGEST_LINE, longer="cut"):
            read_bytes = line.read_bytes
            is_cut = line.length == "cut"
            is_blank = not is_cut and not line.content.strip()
            if is_blank and self.documents == "file":
                continue
            if not is_blank:
                first = first if lines else line.number
                lines.append(line.content)
                size += len(line.content)
            if lines and (is_blank or is_cut or self._ends(size)):
                goes_on = is_cut or (self.documents != "line" and not is_blank)
                yield Record(lines, first, read_bytes, cut=goes_on)
                lines, size = [], 0
        if lines:
            yield Record(lines, first, read_bytes)

    def parse(self, raw: RawDocument) -> Parsed:
        """Return the lines that hold words; those that are not UTF-8 are skipped."""
        return decoded(raw.content, raw)

    def _ends(self, size: int) -> bool:
        return self.documents == "line" or size >= LONGEST_DOCUMENT


@dataclass(frozen=True)
class WikiExtractorFiles(FileSource):
    """Output of WikiExtractor: <doc id="..." url="..." title="..."> ... </doc>."""

    kind = "WikiExtractor files"

    def records(self, file: Path) -> Iterator[Record | Skipped]:
        """Yield the undecoded lines of each article, without its title."""
        lines: list[bytes] = []
        first = size = 0
        is_outside = False
        for line in lines_of(file, longest=LONGEST_LINE, longer="cut"):
            begins, ends = _DOC_BEGINS.match(line.content), line.content.strip() == _DOC_ENDS
            if lines and (begins or size > LONGEST_ARTICLE):
                yield Skipped(str(file), first, "article without </doc>")
                lines = []
            if begins:
                lines, first, size, is_outside = [line.content], line.number, 0, False
            elif lines and ends:
                yield Record(lines, first, line.read_bytes)
                lines = []
            elif lines:
                lines.append(line.content)
                size += len(line.content)
            elif line.content.strip() and not is_outside:
                yield Skipped(str(file), line.number, "text outside of <doc> and </doc>")
                is_outside = True  # the rest of it needs no line of its own
        if lines:
            yield Skipped(str(file), first, "article without </doc>")

    def parse(self, raw: RawDocument) -> Parsed:
        """Return the lines that hold words, without the title, which WikiExtractor repeats."""
        opening, *lines = raw.content
        parsed = decoded(lines, raw, first_line=raw.line + 1)
        texts = [" ".join(html.unescape(text).split()) for text in parsed.paragraphs]
        title = b"".join(_TITLE.findall(opening)).decode("utf-8", "replace")
        title = " ".join(html.unescape(title).split())
        if texts and texts[0] == title:
            del texts[0]
        return Parsed(list(filter(None, texts)), parsed.skipped)


def decoded(lines: list[bytes], raw: RawDocument, *, first_line: int | None = None) -> Parsed:
    """Return the lines that hold words as paragraphs; those that are not UTF-8 are skipped."""
    first_line = raw.line if first_line is None else first_line
    paragraphs, skipped = [], []
    for number, line in enumerate(lines, start=first_line):
        try:
            paragraph = " ".join(line.decode("utf-8").split())
        except UnicodeDecodeError:
            skipped.append(Skipped(raw.file, number, "not valid UTF-8"))
            continue
        if paragraph:
            paragraphs.append(paragraph)
    return Parsed(paragraphs, skipped)
