"""Recognise files that are not UTF-8 text, by their names and by their first bytes.

Such a file would otherwise be read as text: most of its lines are not UTF-8, the rest is noise.
"""

import shlex
from pathlib import Path
from typing import NamedTuple

from data_prep.files.program import shell_command
from data_prep.sources.compression import COMPRESSIONS
from data_prep.sources.source import CorpusError, NotText

BEGINNING_BYTES = 4096  # what is looked at
# In the names of its parts ("enwiki-...-pages-articles1.xml-p1p41242.bz2") and of its index.
NAME_OF_DUMP = "-pages-articles"


class FileType(NamedTuple):
    """A kind of file that is not plain text, and how to get at its text."""

    what: str
    remedy: str  # {file} is replaced by the name


_PANDOC = "extract its text: pandoc -t plain --wrap=none {file} -o {file}.txt"
_TAR = FileType("a tar archive", "unpack it and name what is inside: tar -xf {file} -C FOLDER")
_HDF5 = FileType(
    "an HDF5 file",
    "export its text as JSON Lines (.jsonl); pre-training shards of other programs are converted "
    f"by {shell_command('data', 'import')}",
)
_DUMP = FileType(
    "a Wikipedia dump",
    "run WikiExtractor on it and give the folder of its output, or take the articles from the Hub: "
    "--corpus hub:wikimedia/wikipedia:config=20231101.en",
)
_HTML = FileType("an HTML page", _PANDOC)
_TYPE_OF_SUFFIX = {
    ".pdf": FileType("a PDF document", "extract its text: pdftotext {file}"),
    ".docx": FileType("a Word document", _PANDOC),
    ".odt": FileType("an OpenDocument file", _PANDOC),
    ".epub": FileType("an EPUB book", _PANDOC),
    ".rtf": FileType("an RTF document", _PANDOC),
    **{".html": _HTML, ".htm": _HTML},
    ".xml": FileType("an XML file", "extract its text, or read its lines as they are: text:{file}"),
    ".zip": FileType("a ZIP archive", "unpack it and name what is inside: unzip {file} -d FOLDER"),
    **{".tar": _TAR, ".tgz": _TAR, ".h5": _HDF5, ".hdf5": _HDF5},
}

# Byte-order marks of other encodings than UTF-8.
_ENCODINGS = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
_FEWEST_CONTROLS = 4  # fewer may be stray
# A larger share of control characters is no text; in random bytes it is 10 %. Terminals write
# escapes, and old manual pages backspaces.
_MOST_CONTROLS = 0.05
_CONTROLS = bytes(set(range(32)) - set(b"\b\t\n\v\f\r\x1b"))


def type_of_name(file: Path) -> FileType | None:
    """Return what a file is by its name, None if it may be text."""
    if NAME_OF_DUMP in file.name:
        return _DUMP
    stem = file.stem if file.suffix in COMPRESSIONS else file.name
    return _TYPE_OF_SUFFIX.get(Path(stem).suffix.lower())


def refuse_name(file: Path) -> None:
    """Refuse a file whose name says that it is not plain text.

    Raises:
        NotText: It is not.
    """
    if kind := type_of_name(file):
        raise NotText(f"{file}: {kind.what}, not text; {remedy_of(kind, file)}")


def refuse_content(file: Path, beginning: bytes) -> None:
    """Refuse content that is not plain text in UTF-8, by its first `BEGINNING_BYTES`.

    Raises:
        NotText: It is binary.
        CorpusError: It is UTF-16 or UTF-32.
    """
    marked = (name for mark, name in _ENCODINGS.items() if beginning.startswith(mark))
    if encoding := next(marked, None):
        raise CorpusError(
            f"{file}: is {encoding}, not UTF-8; convert it: {conversion(file, encoding)}"
        )
    num_controls = len(beginning) - len(beginning.translate(None, _CONTROLS))
    if num_controls > max(_FEWEST_CONTROLS, _MOST_CONTROLS * len(beginning)):
        raise NotText(
            f"{file}: binary data or UTF-16, not text ({num_controls:,} of its first "
            f"{len(beginning):,} bytes are control characters); leave it out, or convert it"
        )


def conversion(file: Path, encoding: str) -> str:
    """Return the command that converts a file to UTF-8."""
    is_packed = file.suffix in COMPRESSIONS
    name = file.with_suffix("") if is_packed else file
    to = name.with_name(f"{name.stem}.utf8{name.suffix}")
    command = f"iconv -f {encoding} -t UTF-8 {shlex.quote(str(name))} > {shlex.quote(str(to))}"
    return f"unpack it, then {command}" if is_packed else command


def remedy_of(kind: FileType, file: Path) -> str:
    """Return how to get at the text of a file, with its name in the command."""
    return kind.remedy.format(file=shlex.quote(str(file)))
