"""Open plain and compressed files as streams of bytes; report damage as `DamagedFile`."""

import bz2
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

DAMAGE = (OSError, EOFError, lzma.LZMAError, zlib.error, zstandard.ZstdError)

_UTF8_MARK = b"\xef\xbb\xbf"
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
            decompress = _DECOMPRESSORS.get(file.suffix)
            yield OpenFile(decompress(stored) if decompress else stored, stored.tell)
    except DAMAGE as error:
        raise DamagedFile(0, getattr(error, "strerror", None) or error) from error


@contextmanager
def opened_text(file: Path) -> Iterator[OpenFile]:
    """Open a UTF-8 file and skip its byte-order mark, if there is one.

    Raises:
        DamagedFile: It cannot be opened, or the block cannot read it to its end.
        NotText: Its first bytes are not those of text.
    """
    with opened(file) as found:
        beginning = found.content.peek(BEGINNING_BYTES)[:BEGINNING_BYTES]
        num_controls = len(beginning) - len(beginning.translate(None, _CONTROLS))
        if num_controls > max(_FEWEST_CONTROLS, _MOST_CONTROLS * len(beginning)):
            raise NotText(
                f"{file}: binary data or UTF-16, not text in UTF-8 ({num_controls:,} of its first "
                f"{len(beginning):,} bytes are control characters); convert it with iconv, or "
                "leave such files out: --data.damaged_files skip"
            )
        if beginning.startswith(_UTF8_MARK):
            found.content.read(len(_UTF8_MARK))
        yield found


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


class _ZstandardFrames(io.RawIOBase):
    """The content of a .zst file; unlike the library's reader it detects a truncated file."""

    def __init__(self, stored: BinaryIO) -> None:
        self._stored = stored
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_LARGEST_WINDOW)
        self._frame: Any = None
        self._compressed = self._content = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._content:
            self._compressed = self._compressed or self._stored.read(ZSTD_STEP_BYTES)
            if not self._compressed:
                if self._frame is not None:
                    raise EOFError("the file ends within a frame")
                return 0
            self._frame = self._frame or self._decompressor.decompressobj()
            self._content = self._frame.decompress(self._compressed)
            self._compressed = self._frame.unused_data
            if self._frame.eof:
                self._frame = None
        data, self._content = self._content[: len(buffer)], self._content[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)


_DECOMPRESSORS: dict[str, Callable[[BinaryIO], Any]] = {
    ".gz": lambda stored: gzip.GzipFile(fileobj=stored),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
    ".zst": lambda stored: io.BufferedReader(_ZstandardFrames(stored), BLOCK_BYTES),
}
