"""Read lines of plain and compressed files in bounded memory, however long the lines are."""

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, cast

import zstandard

from data_prep.sources.source import CorpusError, DamagedFile

COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")
BLOCK_BYTES = 1 << 20

DAMAGE = (OSError, EOFError, lzma.LZMAError, zlib.error, zstandard.ZstdError)
_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


class Line(NamedTuple):
    """A line, or a part of one that is too long."""

    content: bytes  # without the line feed
    number: int  # from 1
    read_bytes: int  # of the file, as it is on the disk
    length: Literal["whole", "cut", "too long"] = "whole"  # cut: the next item goes on with it


class OpenFile(NamedTuple):
    """A file that is read, and the one below it when it is compressed."""

    content: BinaryIO
    stored: BinaryIO


@contextmanager
def opened(file: Path) -> Iterator[OpenFile]:
    """Open a file for reading, decompressed according to its name."""
    with file.open("rb") as stored, _decompressed(file, stored) as content:
        yield OpenFile(content, stored)


def lines_of(file: Path, *, longest: int, longer: Literal["cut", "leave out"]) -> Iterator[Line]:
    """Yield the lines of a file.

    Args:
        file: Plain, .gz, .bz2, .xz or .zst.
        longest: Bytes that a line may have; about three times that, and 2 MB, are held at once.
        longer: Whether longer lines are cut into parts of that length, after a space where there
            is one, or left out (one item "too long" without content).

    Raises:
        DamagedFile: The file cannot be read to its end.
        CorpusError: It is UTF-16.
    """
    number, waiting, is_passed_over, is_begun = 1, b"", False, False
    try:
        with opened(file) as (content, stored):
            while block := content.read(BLOCK_BYTES):
                if not is_begun:
                    block, is_begun = _without_mark(block, file), True
                *whole, waiting = (waiting + block).split(b"\n")
                read_bytes = stored.tell()
                for line in whole:
                    if not is_passed_over:
                        yield Line(line, number, read_bytes)
                    number, is_passed_over = number + 1, False
                if longer == "leave out" and len(waiting) > longest and not is_passed_over:
                    yield Line(b"", number, read_bytes, "too long")
                    is_passed_over = True
                while longer == "cut" and len(waiting) > longest:
                    part, waiting = _cut(waiting, longest)
                    yield Line(part, number, read_bytes, "cut")
                if is_passed_over:
                    waiting = b""
            if waiting and not is_passed_over:
                yield Line(waiting, number, stored.tell())
    except DAMAGE as error:
        raise DamagedFile(number, error) from error


def _decompressed(file: Path, stored: BinaryIO) -> BinaryIO:
    match file.suffix:
        case ".xz":
            return cast(BinaryIO, lzma.open(stored))
        case ".gz":
            return cast(BinaryIO, gzip.open(stored))
        case ".bz2":
            return cast(BinaryIO, bz2.open(stored))
        case ".zst":
            return cast(BinaryIO, io.BufferedReader(_ZstandardFrames(stored), BLOCK_BYTES))
        case _:
            return stored


class _ZstandardFrames(io.RawIOBase):
    """The content of a .zst file; unlike the library's own reader it notices a file cut short."""

    def __init__(self, stored: BinaryIO) -> None:
        self._stored = stored
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._in_frame = False
        self._waiting = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._waiting:
            block = self._frame.unused_data if self._frame.eof else b""
            if self._frame.eof:
                self._frame = zstandard.ZstdDecompressor().decompressobj()
                self._in_frame = False
            block = block or self._stored.read(BLOCK_BYTES // 8)
            if not block:
                if self._in_frame:
                    raise EOFError("the file ends within a frame")
                return 0
            self._waiting = self._frame.decompress(block)
            self._in_frame = True
        size = min(len(buffer), len(self._waiting))
        buffer[:size], self._waiting = self._waiting[:size], self._waiting[size:]
        return size


def _without_mark(block: bytes, file: Path) -> bytes:
    """Return the first block without the mark that some editors write."""
    if block.startswith(_UTF16_MARKS):
        raise CorpusError(
            f"{file}: is UTF-16, not UTF-8; convert it: iconv -f UTF-16 -t UTF-8 {file}"
        )
    return block.removeprefix(_UTF8_MARK)


def _cut(line: bytes, longest: int) -> tuple[bytes, bytes]:
    """Cut a line after its last space within `longest`, or at least between two characters."""
    end = line.rfind(b" ", 0, longest) + 1
    if not end:
        end = longest
        # In UTF-8 the bytes that continue a character are 10xxxxxx; there are three at most.
        while end > max(1, longest - 3) and line[end] & 0b1100_0000 == 0b1000_0000:
            end -= 1
    return line[:end], line[end:]
