"""Recognise files that are not UTF-8 text, by their first bytes and by their names.

Such a file would otherwise be read as text: most of its lines are not UTF-8, the rest is noise.
"""

import shlex
from pathlib import Path
from typing import NamedTuple

from data_prep.files.program import shell_command
from data_prep.sources.compression import COMPRESSIONS
from data_prep.sources.source import CorpusError, NotText

BEGINNING_BYTES = 4096  # what is looked at; the mark of tar is at 257
# In the names of its parts ("enwiki-...-pages-articles1.xml-p1p41242.bz2") and of its index.
NAME_OF_DUMP = "-pages-articles"


class FileType(NamedTuple):
    """A kind of file that is not plain text, and how to get at its text."""

    what: str
    remedy: str  # {file} is replaced by the name


_PANDOC = "extract its text: pandoc -f {format} -t plain --wrap=none {{file}} -o {{file}}.txt"

PDF = FileType("a PDF document", "extract its text: pdftotext {file}")
WORD = FileType("a Word document", _PANDOC.format(format="docx"))
OPEN_DOCUMENT = FileType("an OpenDocument file", _PANDOC.format(format="odt"))
EPUB = FileType("an EPUB book", _PANDOC.format(format="epub"))
RTF = FileType("an RTF document", _PANDOC.format(format="rtf"))
HTML = FileType("an HTML page", _PANDOC.format(format="html"))
XML = FileType("an XML file", "extract its text")
DUMP = FileType(
    "a Wikipedia dump",
    "run WikiExtractor on it and give the folder of its output, or take the articles from the Hub: "
    "--corpus hub:wikimedia/wikipedia:config=20231101.en",
)
ZIP = FileType("a ZIP archive", "unpack it and name what is inside: unzip {file} -d FOLDER")
TAR = FileType("a tar archive", "unpack it and name what is inside: tar -xf {file} -C FOLDER")
HDF5 = FileType(
    "an HDF5 file",
    "export its text as JSON Lines (.jsonl); pre-training shards of other programs are converted "
    f"by {shell_command('data', 'import')}",
)

_COMPRESSED = {
    b"\x1f\x8b\x08": ".gz",
    **{f"BZh{level}1AY&SY".encode(): ".bz2" for level in range(1, 10)},
    b"\xfd7zXZ\x00": ".xz",
    b"\x28\xb5\x2f\xfd": ".zst",
}
_MARKS = {
    b"%PDF-": PDF,
    b"{\\rtf": RTF,
    b"<mediawiki": DUMP,
    b"PK\x03\x04": ZIP,
    b"\x89HDF\r\n\x1a\n": HDF5,
}
_TYPE_OF_SUFFIX = {
    **{".pdf": PDF, ".docx": WORD, ".odt": OPEN_DOCUMENT, ".epub": EPUB, ".rtf": RTF},
    **{".html": HTML, ".htm": HTML, ".xhtml": HTML, ".xml": XML, ".zip": ZIP, ".tar": TAR},
    **{".tgz": TAR, ".h5": HDF5, ".hdf5": HDF5},
}
_READABLE = (HTML, XML)  # their bytes are those of text, which may be wanted as it is

# Byte-order marks of other encodings than UTF-8.
_ENCODINGS = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
# UTF-16 of Latin text has a zero in every second byte; of other scripts in those of spaces.
_COMMON_ZEROS, _RARE_ZEROS = 0.1, 0.005
_FEWEST_CONTROLS = 4  # fewer may be stray
# A larger share of control characters is no text; in random bytes it is 10 %. Terminals write
# escapes, and old manual pages backspaces.
_MOST_CONTROLS = 0.05
_CONTROLS = bytes(set(range(32)) - set(b"\b\t\n\v\f\r\x1b"))

_UNPACKERS = {".gz": "gzip -dc", ".bz2": "bzip2 -dc", ".xz": "xz -dc", ".zst": "zstd -dc"}


def type_of_name(file: Path) -> FileType | None:
    """Return what a file is by its name, None if it may be text."""
    if NAME_OF_DUMP in file.name:
        return DUMP
    stem = file.stem if file.suffix in COMPRESSIONS else file.name
    return _TYPE_OF_SUFFIX.get(Path(stem).suffix.lower())


def refuse_name(file: Path) -> None:
    """Refuse a file whose name says that it is not plain text.

    Raises:
        NotText: It is not.
    """
    if kind := type_of_name(file):
        also = f"; to read its lines as they are: text:{file}" if kind in _READABLE else ""
        raise NotText(f"{file}: {kind.what}, not text; {remedy_of(kind, file)}{also}")


def refuse_content(file: Path, beginning: bytes, *, is_stored: bool) -> None:
    """Refuse content that is not plain text in UTF-8, by its first `BEGINNING_BYTES`.

    Args:
        file: For the message.
        beginning: The first bytes.
        is_stored: Whether they are those on the disk, where a name may announce a compression.

    Raises:
        NotText: It is of another type, or compressed under a name that does not say so.
        CorpusError: It is UTF-16 or UTF-32.
    """
    kind = next((kind for mark, kind in _MARKS.items() if beginning.startswith(mark)), None)
    if kind := TAR if beginning[257:262] == b"ustar" else kind:
        raise NotText(f"{file}: {kind.what}, not text; {remedy_of(kind, file)}")
    suffix = next((name for mark, name in _COMPRESSED.items() if beginning.startswith(mark)), None)
    if suffix is not None and not (is_stored and suffix == file.suffix):
        _refuse_compressed(file, suffix, is_stored=is_stored)
    if not (is_stored and file.suffix in COMPRESSIONS):
        _refuse_other_encoding(file, beginning)


def conversion(file: Path, encoding: str) -> str:
    """Return the command that converts a file to UTF-8."""
    is_packed = file.suffix in _UNPACKERS
    name = file.with_suffix("") if is_packed else file
    to = shlex.quote(str(name.with_name(f"{name.stem}.utf8{name.suffix}")))
    iconv = f"iconv -f {encoding} -t UTF-8"
    if is_packed:
        return f"{_UNPACKERS[file.suffix]} {shlex.quote(str(file))} | {iconv} > {to}"
    return f"{iconv} {shlex.quote(str(file))} > {to}"


def remedy_of(kind: FileType, file: Path) -> str:
    """Return how to get at the text of a file, with its name in the command."""
    return kind.remedy.format(file=shlex.quote(str(file)))


def _refuse_compressed(file: Path, suffix: str, *, is_stored: bool) -> None:
    if not is_stored:
        raise NotText(f"{file}: compressed twice ({suffix[1:]} inside); decompress it once")
    name = file.with_suffix("") if file.suffix in COMPRESSIONS else file
    raise NotText(
        f"{file}: compressed ({suffix[1:]}), which its name does not say; rename it: "
        f"mv {shlex.quote(str(file))} {shlex.quote(f'{name}{suffix}')}"
    )


def _refuse_other_encoding(file: Path, beginning: bytes) -> None:
    """Refuse content whose byte-order mark or control characters show that it is not UTF-8."""
    marked = (name for mark, name in _ENCODINGS.items() if beginning.startswith(mark))
    if encoding := next(marked, None) or _encoding_of_zeros(beginning):
        raise CorpusError(
            f"{file}: is {encoding}, not UTF-8; convert it: {conversion(file, encoding)}"
        )
    num_controls = len(beginning) - len(beginning.translate(None, _CONTROLS))
    if num_controls > max(_FEWEST_CONTROLS, _MOST_CONTROLS * len(beginning)):
        raise NotText(
            f"{file}: binary data, not text ({num_controls:,} of its first {len(beginning):,} "
            "bytes are control characters); leave it out"
        )


def _encoding_of_zeros(beginning: bytes) -> str | None:
    """Return the kind of UTF-16 without a mark that the places of zero bytes show, if any."""
    half = len(beginning) // 2
    even, odd = beginning[::2].count(0), beginning[1::2].count(0)
    rare, common = min(even, odd), max(even, odd)
    if common < max(_FEWEST_CONTROLS, _COMMON_ZEROS * half) or rare > _RARE_ZEROS * half:
        return None
    return "UTF-16LE" if odd == common else "UTF-16BE"
