"""Plain text, one paragraph a line.

Documents are found block by block, not line by line: the one process that reads must feed all
others.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from data_prep.sources.source import INVALID_UTF8, DamagedFile, Document, FileSource, Skipped
from data_prep.sources.streams import BLOCK_BYTES, DAMAGE, opened_text

LONGEST_DOCUMENT = 1 << 20  # bytes; a longer document or line is yielded in parts

Part = tuple[bytes, int, bool]  # content, first line, whether the rest follows

DocumentEnd = Literal["blank_line", "line", "file"]

_SEPARATORS: dict[DocumentEnd, re.Pattern[bytes]] = {
    "blank_line": re.compile(rb"\n\s*\n"),
    "line": re.compile(rb"\n"),
    "file": re.compile(rb"(?!)"),  # never matches
}


@dataclass(frozen=True)
class TextFiles(FileSource):
    """UTF-8 text, one paragraph a line; every file starts a new document."""

    documents: DocumentEnd = "blank_line"

    kind = "text files"
    unit = "lines"

    def records(self, file: Path) -> Iterator[Document]:
        """Yield the documents; lines that are not UTF-8 are skipped."""
        with opened_text(file) as (stream, read_bytes):
            reader = Blocks(self.documents)
            try:
                while block := stream.read1(BLOCK_BYTES):
                    place = read_bytes()
                    for part in reader.add(block):
                        yield decoded(part, file, place)
            except DAMAGE as error:
                reader.drop_last_line()
                yield from (decoded(part, file, read_bytes()) for part in reader.end())
                raise DamagedFile(reader.line, error) from error
            yield from (decoded(part, file, read_bytes()) for part in reader.end())


class Blocks:
    """Finds the documents of a file that is read in blocks."""

    def __init__(self, ends: DocumentEnd, line: int = 1) -> None:
        self.line = line  # of the first waiting byte
        self._separator = _SEPARATORS[ends]
        self._waiting = b""

    def add(self, block: bytes) -> Iterator[Part]:
        """Yield the documents that end in this block, and parts of one that is too long."""
        text, start = self._waiting + block, 0
        for found in self._separator.finditer(text):
            yield from self._whole(text[start : found.end()])
            start = found.end()
        self._waiting = text[start:]
        while len(self._waiting) > LONGEST_DOCUMENT:
            end = _cut(self._waiting)
            rest = self._waiting[end:]
            if len(rest) <= LONGEST_DOCUMENT and not rest.strip():
                break  # the next block decides whether the document continues
            yield from self._part(self._waiting[:end], cut=True)
            self._waiting = rest

    def end(self) -> Sequence[Part]:
        """Return the document that ends with the file."""
        content, self._waiting = self._waiting, b""
        return self._whole(content)

    def drop_last_line(self) -> None:
        """Drop a last line that was not read to its end."""
        self._waiting = self._waiting[: self._waiting.rfind(b"\n") + 1]

    def _whole(self, content: bytes) -> Sequence[Part]:
        """Return a document, in parts if it is too long; all but the last are cut."""
        text = content.rstrip()
        if len(text) <= LONGEST_DOCUMENT:
            return self._part(content, cut=False)
        parts: list[Part] = []
        while len(text) > LONGEST_DOCUMENT:
            end = _cut(text)
            parts += self._part(text[:end], cut=True)
            text, content = text[end:], content[end:]
        return [*parts, *self._part(content, cut=False)]

    def _part(self, content: bytes, *, cut: bool) -> Sequence[Part]:
        """Return the text without blank lines around it, and advance the line number."""
        line = self.line
        self.line += content.count(b"\n")
        if text := content.strip():
            first = content.find(text[:1])  # only blanks precede it
            return ((text, line + content.count(b"\n", 0, first), cut),)
        return ()


def decoded(part: Part, file: Path, read_bytes: int) -> Document:
    """Return the lines of a document that are UTF-8, and the others as skipped."""
    content, first, cut = part
    try:
        return Document(content.decode(), str(file), first, read_bytes, cut=cut)
    except UnicodeDecodeError:
        pass
    lines, skipped = [], []
    for number, line in enumerate(content.split(b"\n"), start=first):
        try:
            lines.append(line.decode())
        except UnicodeDecodeError:
            skipped.append(Skipped(str(file), number, INVALID_UTF8))
    return Document("\n".join(lines), str(file), first, read_bytes, tuple(skipped), cut)


def _cut(text: bytes) -> int:
    """Return where to cut a text that is too long: after a line, a word or a character."""
    for blank in (b"\n", b" "):
        if end := text.rfind(blank, 0, LONGEST_DOCUMENT) + 1:
            return end
    # The first byte of a long character is 11xxxxxx, and at most three 10xxxxxx follow.
    for back in range(1, 4):
        byte = text[LONGEST_DOCUMENT - back]
        if byte & 0b1100_0000 != 0b1000_0000:
            return LONGEST_DOCUMENT - back * (byte >= 0b1100_0000)
    return LONGEST_DOCUMENT
