"""Open plain and compressed files as streams of bytes; report damage as `DamagedFile`."""

import bz2
import gzip
import io
import lzma
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from data_prep.sources.source import DamagedFile

COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")
BLOCK_BYTES = 1 << 20
# 4 bytes of a .zst file can become 128 KiB: this bounds the output of one step to 64 MiB.
ZSTD_STEP_BYTES = 2048
ZSTD_LARGEST_WINDOW = 1 << 31  # `zstd --long=31`, used for some very large dumps

DAMAGE = (OSError, EOFError, lzma.LZMAError, zlib.error)


class OpenFile(NamedTuple):
    """A file that is being read."""

    content: "io.BufferedReader[Any]"  # decompressed
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
        with io.BufferedReader(io.FileIO(file), BLOCK_BYTES) as stored:
            if file.suffix not in _DECOMPRESSORS:
                yield OpenFile(stored, stored.tell)
                return
            steps = _Steps(_DECOMPRESSORS[file.suffix](stored))
            with io.BufferedReader(steps, BLOCK_BYTES) as content:
                yield OpenFile(content, stored.tell)
    except DAMAGE as error:
        raise DamagedFile(0, getattr(error, "strerror", None) or error) from error


class _Steps(io.RawIOBase):
    """The output of a decompressor step by step.

    The library's own `read(n)` collects n bytes, usually a million, and loses them all when one of
    its steps fails.
    """

    def __init__(self, decompressor: Any) -> None:
        self._decompressor = decompressor

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._decompressor.read1(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class _ZstandardFrames:
    """The content of a .zst file; unlike the library's reader it detects a truncated file."""

    def __init__(self, stored: BinaryIO) -> None:
        self._stored = stored
        import zstandard

        self._decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_LARGEST_WINDOW)
        self._error = zstandard.ZstdError
        self._frame: Any = None
        self._compressed = self._content = b""

    def read1(self, size: int) -> bytes:
        while not self._content:
            self._compressed = self._compressed or self._stored.read(ZSTD_STEP_BYTES)
            if not self._compressed:
                if self._frame is not None:
                    raise EOFError("the file ends within a frame")
                break
            self._frame = self._frame or self._decompressor.decompressobj()
            try:
                self._content = self._frame.decompress(self._compressed)
            except self._error as error:
                raise OSError(str(error)) from error
            self._compressed = self._frame.unused_data
            if self._frame.eof:
                self._frame = None
        data, self._content = self._content[:size], self._content[size:]
        return data


_DECOMPRESSORS: dict[str, Callable[[BinaryIO], Any]] = {
    ".gz": lambda stored: gzip.GzipFile(fileobj=stored),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
    ".zst": _ZstandardFrames,
}
