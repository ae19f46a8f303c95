"""Guess the encoding of text that is not UTF-8, and name the command that converts it.

The guess serves a message only. It is honest rather than clever: where bytes fit several encodings
that differ in what they mean, there is none.
"""

import shlex
from pathlib import Path

from data_prep.sources.compression import opened
from data_prep.sources.source import DamagedFile

SAMPLE_BYTES = 1 << 20
_MARKS = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
# UTF-16 of Latin text has a zero in every second byte; of other scripts in those of spaces.
_COMMON_ZEROS, _RARE_ZEROS = 0.1, 0.005
FEWEST_ZEROS = 4  # fewer may be stray control characters
# Bytes 0x80 to 0x9F: letters and quotes in Windows-1252, control characters in ISO-8859-1.
_C1 = range(0x80, 0xA0)
_UNUSED_IN_WINDOWS_1252 = {0x81, 0x8D, 0x8F, 0x90, 0x9D}
# In the languages of Western Europe fewer letters than this have accents; Cyrillic, Greek and
# Asian texts have many more bytes above 0x7F.
_MOST_ACCENTS = 0.2
_MOST_VALID_LINES = 0.1  # of the lines with bytes above 0x7F: else a file of several encodings


def encoding_of_mark(beginning: bytes) -> str | None:
    """Return the encoding that a byte-order mark names; None for UTF-8 or no mark."""
    return next((name for mark, name in _MARKS.items() if beginning.startswith(mark)), None)


def encoding_of_zeros(beginning: bytes) -> str | None:
    """Return the kind of UTF-16 without a mark that the places of zero bytes show, if any."""
    half = len(beginning) // 2
    even, odd = beginning[::2].count(0), beginning[1::2].count(0)
    rare, common = min(even, odd), max(even, odd)
    if common < max(FEWEST_ZEROS, _COMMON_ZEROS * half) or rare > _RARE_ZEROS * half:
        return None
    return "UTF-16LE" if odd == common else "UTF-16BE"


def encoding_of_bytes(sample: bytes) -> str | None:
    """Return the single-byte encoding that text which is not UTF-8 probably has, if one does."""
    high = [byte for byte in sample if byte >= 0x80]
    letters = sum(chr(byte).isalpha() for byte in sample if byte < 0x80)
    lines = [line for line in sample.split(b"\n")[:-1] if not line.isascii()]
    num_valid = sum(_is_utf8(line) for line in lines)
    if (
        not high
        or len(high) > _MOST_ACCENTS * (letters + len(high))
        or num_valid > _MOST_VALID_LINES * len(lines)
    ):
        return None
    if not any(byte in _C1 for byte in high):
        return "ISO-8859-1"
    return None if _UNUSED_IN_WINDOWS_1252.intersection(high) else "WINDOWS-1252"


def conversion(file: Path, encoding: str) -> str:
    """Return the command that converts a file to UTF-8."""
    is_packed = file.suffix in _UNPACKERS
    name = file.with_suffix("") if is_packed else file
    to = shlex.quote(str(name.with_name(f"{name.stem}.utf8{name.suffix}")))
    iconv = f"iconv -f {encoding} -t UTF-8"
    if is_packed:
        return f"{_UNPACKERS[file.suffix]} {shlex.quote(str(file))} | {iconv} > {to}"
    return f"{iconv} {shlex.quote(str(file))} > {to}"


def remedy_for(file: Path) -> str:
    """Return how to convert a file with text that is not UTF-8."""
    try:
        with opened(file) as (stream, _):
            sample = stream.read(SAMPLE_BYTES)
    except DamagedFile:
        sample = b""
    if encoding := encoding_of_bytes(sample):
        return f"it looks like {encoding}: {conversion(file, encoding)}"
    return (
        "its encoding could not be guessed, or it holds several; convert it: "
        f"{conversion(file, 'ENCODING')}"
    )


_UNPACKERS = {".gz": "gzip -dc", ".bz2": "bzip2 -dc", ".xz": "xz -dc", ".zst": "zstd -dc"}


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
