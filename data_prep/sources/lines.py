"""Read lines of plain and compressed files in bounded memory, whatever their length."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from data_prep.sources.compression import DAMAGE, OpenFile, opened
from data_prep.sources.file_types import BEGINNING_BYTES, refuse_content
from data_prep.sources.source import DamagedFile

Line = tuple[int, bytes, bool]  # number from 1, bytes, whether they start the line

PIECE_BYTES = 1 << 20
_LINE_FEED = ord("\n")
_UTF8_MARK = b"\xef\xbb\xbf"


@contextmanager
def opened_text(file: Path) -> Iterator[OpenFile]:
    """Open a UTF-8 file and skip its byte-order mark, if there is one.

    Raises:
        DamagedFile: It cannot be opened, or the block cannot read it to its end.
        NotText: Its first bytes are not those of text.
        CorpusError: It is UTF-16 or UTF-32.
    """
    with opened(file) as found:
        beginning = found.content.peek(BEGINNING_BYTES)[:BEGINNING_BYTES]
        refuse_content(file, beginning, is_stored=False)
        if beginning.startswith(_UTF8_MARK):
            found.content.read(len(_UTF8_MARK))
        yield found


def cut_lines(stream: BufferedReader, longest: int) -> Iterator[Line]:
    """Yield the lines of a stream with their line feeds.

    A line of more than `longest` bytes is yielded in pieces, cut after a space if there is one, and
    never within a character.

    Raises:
        DamagedFile: The stream cannot be read to its end.
    """
    number, begins, rest = 1, True, b""
    try:
        while piece := stream.readline(longest - len(rest)):
            if rest:
                piece, rest = rest + piece, b""
            if piece[-1] == _LINE_FEED:
                yield number, piece, begins
                number, begins = number + 1, True
                continue
            if len(piece) == longest:
                end = last_cut(piece)
                piece, rest = piece[:end], piece[end:]
            yield number, piece, begins
            begins = False
    except DAMAGE as error:
        raise DamagedFile(number - 1, error) from error
    if rest:
        yield number, rest, begins


def whole_lines(stream: BufferedReader, longest: int) -> Iterator[tuple[int, bytes | None]]:
    """Yield the lines of a stream and their numbers; None for one of more than `longest` bytes.

    Raises:
        DamagedFile: The stream cannot be read to its end.
    """
    number = 0
    try:
        for line in iter(functools.partial(stream.readline, longest + 1), b""):
            number += 1
            if len(line) <= longest or line[-1] == _LINE_FEED:
                yield number, line
                continue
            yield number, None
            while line and line[-1] != _LINE_FEED:
                line = stream.readline(PIECE_BYTES)
    except DAMAGE as error:
        raise DamagedFile(number, error) from error


def last_cut(piece: bytes) -> int:
    """Return where to cut a piece of UTF-8: after its last space, or between characters."""
    end = piece.rfind(b" ") + 1
    if end:
        return end
    end = len(piece)
    # The first byte of a long character is 11xxxxxx, and at most three 10xxxxxx follow.
    for back in range(1, min(4, end)):
        if piece[-back] & 0b1100_0000 != 0b1000_0000:
            return end - back if piece[-back] >= 0b1100_0000 else end
    return end
