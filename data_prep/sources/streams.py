"""Open plain and compressed files as streams of bytes; report damage as `DamagedFile`."""

import bz2
import codecs
import functools
import gzip
import io
import lzma
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import zstandard

from data_prep.sources.source import DamagedFile, NotText

COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")
BLOCK_BYTES = 1 << 20
BEGINNING_BYTES = 4096  # read to recognise files that are no text
# 4 bytes of a .zst file can become 128 KiB: this bounds the output of one step to 64 MiB.
ZSTD_STEP_BYTES = 2048
ZSTD_LARGEST_WINDOW = 1 << 31  # `zstd --long=31`, used for some very large dumps
LONGEST_LINE = 1 << 26  # bytes, of what must be read whole: a few kilobytes can unpack to gigabytes

DAMAGE = (OSError, EOFError, UnicodeError, lzma.LZMAError, zlib.error, zstandard.ZstdError)

UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_FEWEST_CONTROLS = 4  # fewer may be stray
# A larger share of control characters is no text; in random bytes it is 10 %. Terminals write
# escapes, and old manual pages backspaces.
_MOST_CONTROLS = 0.05
_CONTROLS = bytes(set(range(32)) - set(b"\b\t\n\v\f\r\x1b"))


class OpenFile(NamedTuple):
    """A file that is being read."""

    content: Any  # decompressed, a buffered stream
    read_bytes: Callable[[], int]  # bytes of the file on the disk that were read so far


@contextmanager
def opened(file: Path) -> Iterator[OpenFile]:
    """Open a regular file for reading, decompressed according to its name.

    Raises:
        DamagedFile: It cannot be opened, or the block raised one of `DAMAGE`.
    """
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise OSError("not a regular file")  # opening a pipe would wait for its writer
        with file.open("rb", BLOCK_BYTES) as stored:
            decompress = _DECOMPRESSORS.get(file.suffix.lower())
            yield OpenFile(decompress(stored) if decompress else stored, stored.tell)
    except DAMAGE as error:
        raise DamagedFile(0, getattr(error, "strerror", None) or error) from error


@contextmanager
def opened_text(file: Path) -> Iterator[OpenFile]:
    """Open a file of UTF-8, or of UTF-16 with a byte-order mark, as UTF-8 without a mark.

    Raises:
        DamagedFile: It cannot be opened, or the block cannot read it to its end.
        NotText: Its first bytes are not those of text.
    """
    with opened(file) as (content, read_bytes):
        if content.peek(2).startswith(UTF16_MARKS):
            content = io.BufferedReader(_Pieces(_in_utf8(content)), BLOCK_BYTES)
        beginning = content.peek(BEGINNING_BYTES)[:BEGINNING_BYTES]
        num_controls = len(beginning) - len(beginning.translate(None, _CONTROLS))
        if num_controls > max(_FEWEST_CONTROLS, _MOST_CONTROLS * len(beginning)):
            raise NotText(0, "binary data, or UTF-16 without a byte-order mark")
        if beginning.count(b"\r") > 1 and b"\n" not in beginning:
            raise NotText(0, "lines end with carriage returns alone, which tr '\\r' '\\n' replaces")
        if beginning.startswith(codecs.BOM_UTF8):
            content.read(len(codecs.BOM_UTF8))
        yield OpenFile(content, read_bytes)


def numbered_lines(stream: Any, longest: int | None = None) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a stream with their numbers; one over `longest` bytes in parts.

    Raises:
        DamagedFile: The stream cannot be read to its end, or, without `longest`, a line is too long
            to be read whole.
    """
    number, is_whole = 0, True
    try:
        for line in iter(functools.partial(stream.readline, longest or LONGEST_LINE), b""):
            number += is_whole
            is_whole = line.endswith(b"\n")
            if longest is None and not is_whole:
                refuse_longer(len(line) + 1, number)
            yield number, line
    except DAMAGE as error:
        raise DamagedFile(number, error) from error


def refuse_longer(size: int, number: int) -> None:
    """Refuse to keep so many bytes of a file in memory.

    Raises:
        DamagedFile: They are more than `LONGEST_LINE`.
    """
    if size > LONGEST_LINE:
        raise DamagedFile(number, f"more than {LONGEST_LINE >> 20} MB in one line or document")


class _Pieces(io.RawIOBase):
    """Pieces of bytes as a stream."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            if (piece := next(self._pieces, None)) is None:
                return 0
            self._rest = piece
        data, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)


def _in_utf8(content: Any) -> Iterator[bytes]:
    """Yield what is stored in UTF-16; unpaired surrogates are not valid UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-16")("surrogatepass")
    while block := content.read1(BLOCK_BYTES):
        yield decoder.decode(block).encode(errors="surrogatepass")
    decoder.decode(b"", final=True)  # refuses a half of a character


def _zstandard(stored: BinaryIO) -> Iterator[bytes]:
    """Yield the content of a .zst file; unlike the library's reader it detects a truncated one."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_LARGEST_WINDOW)
    frame, compressed = None, b""
    while compressed := compressed or stored.read(ZSTD_STEP_BYTES):
        frame = frame or decompressor.decompressobj()
        yield frame.decompress(compressed)
        compressed, frame = frame.unused_data, None if frame.eof else frame
    if frame is not None:
        raise EOFError("the file ends within a frame")


_DECOMPRESSORS: dict[str, Callable[[BinaryIO], Any]] = {
    ".gz": lambda stored: gzip.GzipFile(fileobj=stored),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
    ".zst": lambda stored: io.BufferedReader(_Pieces(_zstandard(stored)), BLOCK_BYTES),
}
