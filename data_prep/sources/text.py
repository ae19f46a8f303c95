"""Plain text, one paragraph a line."""

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from data_prep.sources.source import INVALID_UTF8, DamagedFile, Document, FileSource, Skipped
from data_prep.sources.streams import numbered_lines, opened_text, refuse_longer

LONGEST_DOCUMENT = 1 << 20  # bytes; a longer document or line is yielded in parts

Part = tuple[bytes, int, bool]  # content, first line, whether it continues the part before it
DocumentEnd = Literal["blank_line", "line", "file", "article"]


@dataclass(frozen=True)
class TextFiles(FileSource):
    """UTF-8 text, one paragraph a line; every file starts a new document."""

    documents: Literal["blank_line", "line", "file"] = "blank_line"

    kind = "text files"
    unit = "lines"

    def records(self, file: Path) -> Iterator[Document]:
        """Yield the documents; lines that are not UTF-8 are skipped."""
        with opened_text(file) as (stream, read_bytes):
            for part in _parts_of(numbered_lines(stream, LONGEST_DOCUMENT), self.documents):
                yield _decoded(part, file, read_bytes())


def _parts_of(lines: Iterable[tuple[int, bytes]], ends: DocumentEnd) -> Iterator[Part]:
    """Yield the documents of numbered lines, or parts of lines, and parts of one that is too long.

    Raises:
        DamagedFile: Reading the lines has raised it; what was read has been yielded.
    """
    waiting: list[bytes] = []
    first = size = 0
    continues, damage = False, None
    try:
        for number, line in lines:
            first = first if waiting else number
            is_blank = not line.decode(errors="replace").strip()  # of spaces of any script
            is_blank &= not waiting or waiting[-1].endswith(b"\n")
            waiting.append(line)
            size += len(line)
            refuse_longer(16 * size, number)  # white space: a byte takes so many; the rest is cut
            is_end = ends == "line" or (ends == "blank_line" and is_blank)
            is_end = is_end or (ends == "article" and line.startswith(b"</doc>"))
            if is_end and line.endswith(b"\n"):
                yield from _parts(_pieces(waiting), first, continues)
                waiting, size, continues = [], 0, False
            elif size > LONGEST_DOCUMENT and not line.isspace():
                *pieces, rest = _pieces(waiting)
                yield from _parts(pieces, first, continues)
                first += sum(piece.count(b"\n") for piece in pieces)
                waiting, size = [rest], len(rest)
                continues |= any(map(bytes.strip, pieces))
    except DamagedFile as error:
        damage = error
    yield from _parts(_pieces(waiting), first, continues)
    if damage is not None:
        raise damage


def _decoded(part: Part, file: Path, read_bytes: int) -> Document:
    """Return the lines of a document that are UTF-8, and the others as skipped."""
    content, first, continues = part
    with contextlib.suppress(UnicodeDecodeError):
        return Document(content.decode(), str(file), first, read_bytes, continues=continues)
    lines, skipped = [], []
    for number, line in enumerate(content.split(b"\n"), start=first):
        try:
            lines.append(line.decode())
        except UnicodeDecodeError:
            skipped.append(Skipped(str(file), number, INVALID_UTF8))
    return Document("\n".join(lines), str(file), first, read_bytes, tuple(skipped), continues)


def _pieces(lines: list[bytes]) -> list[bytes]:
    """Cut a document where it is too long: after a line, a word or a character."""
    text, start = b"".join(lines), 0
    pieces, length = [], len(text.rstrip())
    while length - start > LONGEST_DOCUMENT:
        most = end = start + LONGEST_DOCUMENT
        for blank in (b"\n", b" "):
            if (end := text.rfind(blank, start, most) + 1) > start:
                break
        else:
            # The first byte of a long character is 11xxxxxx, and at most three 10xxxxxx follow.
            lead = next((n for n in range(1, 4) if text[most - n] & 0b1100_0000 != 0b1000_0000), 0)
            end = most - lead * (text[most - lead] >= 0b1100_0000)
        pieces.append(text[start:end])
        start = end
    return [*pieces, text[start:]]


def _parts(pieces: list[bytes], line: int, continues: bool) -> Iterator[Part]:
    """Yield the pieces of a document without blank lines around them."""
    for piece in pieces:
        if text := piece.strip():
            first = piece.find(text[:1])  # only blanks precede it
            yield text, line + piece.count(b"\n", 0, first), continues
            continues = True
        line += piece.count(b"\n")
