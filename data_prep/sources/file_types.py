"""Recognise files that are not plain text, by their first bytes and by their names.

Such a file would otherwise be read as text: most of its lines are not UTF-8, the rest is noise.
"""

import codecs
import shlex
from pathlib import Path
from typing import NamedTuple

from data_prep.files.program import shell_command
from data_prep.sources.compression import COMPRESSIONS, opened
from data_prep.sources.encoding import FEWEST_ZEROS, conversion, encoding_of_mark, encoding_of_zeros
from data_prep.sources.source import CorpusError, DamagedFile, NotText

BEGINNING_BYTES = 4096  # what is looked at; the mark of tar is at 257
# In the names of its parts ("enwiki-...-pages-articles1.xml-p1p41242.bz2") and of its index.
NAME_OF_DUMP = "-pages-articles"


class FileType(NamedTuple):
    """A kind of file that is not plain text, and how to get at its text."""

    what: str
    remedy: str  # {file} is replaced by the name


_LEAVE_OUT = "leave it out"
_PANDOC = "extract its text: pandoc -f {format} -t plain --wrap=none {{file}} -o {{file}}.txt"
_UNPACK = "unpack it and name what is inside"

PDF = FileType("a PDF document", "extract its text: pdftotext {file}")
WORD = FileType("a Word document", _PANDOC.format(format="docx"))
OPEN_DOCUMENT = FileType("an OpenDocument file", _PANDOC.format(format="odt"))
EPUB = FileType("an EPUB book", _PANDOC.format(format="epub"))
RTF = FileType("an RTF document", _PANDOC.format(format="rtf"))
HTML = FileType("an HTML page", _PANDOC.format(format="html"))
OLD_OFFICE = FileType(
    "an old Microsoft Office file",
    "extract its text: libreoffice --headless --convert-to txt:Text {file}",
)
SPREADSHEET = FileType("a spreadsheet", "save its table as CSV and convert that to Parquet")
SLIDES = FileType("a presentation", "save it as PDF and extract the text: pdftotext")
ZIP = FileType("a ZIP archive", f"{_UNPACK}: unzip {{file}} -d FOLDER")
TAR = FileType("a tar archive", f"{_UNPACK}: tar -xf {{file}} -C FOLDER")
SEVEN_ZIP = FileType("a 7z archive", f"{_UNPACK}: 7z x {{file}}")
RAR = FileType("a RAR archive", f"{_UNPACK}: unrar x {{file}}")
LZ4 = FileType("compressed with lz4", "decompress it: lz4 -d {file}")
CSV = FileType(
    "a CSV table",
    "convert it to Parquet and name its text column, FILE.parquet:column=NAME: "
    'python -c "from pyarrow import csv, parquet; '
    "parquet.write_table(csv.read_csv('{plain}'), '{plain}.parquet')\"",
)
XML = FileType("an XML file", "extract its text")
DUMP = FileType(
    "a Wikipedia dump",
    "run WikiExtractor on it and give the folder of its output, or take the articles from the Hub: "
    "--corpus hub:wikimedia/wikipedia:config=20231101.en",
)
TSV = FileType(
    "a TSV table",
    "convert it to Parquet and name its text column, FILE.parquet:column=NAME: "
    'python -c "from pyarrow import csv, parquet; parquet.write_table('
    "csv.read_csv('{plain}', parse_options=csv.ParseOptions(delimiter='\\t')), "
    "'{plain}.parquet')\"",
)
IMAGE = FileType("an image", _LEAVE_OUT)
MEDIA = FileType("an audio or video file", _LEAVE_OUT)
PROGRAM = FileType("an executable", _LEAVE_OUT)
SQLITE = FileType("an SQLite database", "export its text as JSON Lines (.jsonl)")
PICKLE = FileType("a Python pickle or PyTorch file", "export its text as JSON Lines (.jsonl)")
NUMPY = FileType("a NumPy file", "export its text as JSON Lines (.jsonl)")
HDF5 = FileType(
    "an HDF5 file",
    "export its text as JSON Lines (.jsonl); pre-training shards of other programs are converted "
    f"by {shell_command('data', 'import')}",
)
PARQUET = FileType("a Parquet file", "name its kind: parquet:{file}")
ARROW = FileType("an Arrow file", "convert it to Parquet: pyarrow.parquet.write_table")
MODEL = FileType("a file of model weights", _LEAVE_OUT)

_COMPRESSED = {
    b"\x1f\x8b\x08": ".gz",
    **{f"BZh{level}1AY&SY".encode(): ".bz2" for level in range(1, 10)},
    b"\xfd7zXZ\x00": ".xz",
    b"\x28\xb5\x2f\xfd": ".zst",
}
_MARKS: dict[bytes, FileType] = {
    b"%PDF-": PDF,
    b"{\\rtf": RTF,
    b"<mediawiki": DUMP,
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": OLD_OFFICE,
    b"7z\xbc\xaf\x27\x1c": SEVEN_ZIP,
    b"Rar!\x1a\x07": RAR,
    b"\x04\x22\x4d\x18": LZ4,
    b"\x89PNG\r\n\x1a\n": IMAGE,
    b"\xff\xd8\xff": IMAGE,
    b"GIF87a": IMAGE,
    b"GIF89a": IMAGE,
    b"II*\x00": IMAGE,
    b"MM\x00*": IMAGE,
    b"OggS\x00": MEDIA,
    b"fLaC\x00": MEDIA,
    b"ID3\x02": MEDIA,
    b"ID3\x03": MEDIA,
    b"ID3\x04": MEDIA,
    b"\x1aE\xdf\xa3": MEDIA,
    b"\x7fELF": PROGRAM,
    b"\xcf\xfa\xed\xfe": PROGRAM,
    b"\xca\xfe\xba\xbe": PROGRAM,
    b"SQLite format 3\x00": SQLITE,
    b"\x93NUMPY": NUMPY,
    b"\x89HDF\r\n\x1a\n": HDF5,
    b"ARROW1\x00\x00": ARROW,
    **{b"\x80" + bytes([protocol]): PICKLE for protocol in range(2, 6)},
}
# What the beginning of a ZIP archive holds where it is the container of something else.
_ZIP_CONTENT = {
    b"mimetypeapplication/epub": EPUB,
    b"mimetypeapplication/vnd.oasis": OPEN_DOCUMENT,
    b"word/": WORD,
    b"xl/": SPREADSHEET,
    b"ppt/": SLIDES,
    b"data.pkl": PICKLE,
    b".npy": NUMPY,
}
# Text may begin with these, but not with control characters after them.
_SHORT_MARKS = {
    b"MZ": PROGRAM,
    b"BM": IMAGE,
    b"RIFF": MEDIA,
    b"PAR1": PARQUET,
    b"GGUF": MODEL,
}

TYPE_OF_SUFFIX = {
    ".csv": CSV,
    ".tsv": TSV,
    ".pdf": PDF,
    ".docx": WORD,
    ".odt": OPEN_DOCUMENT,
    ".epub": EPUB,
    ".rtf": RTF,
    ".html": HTML,
    ".htm": HTML,
    ".xhtml": HTML,
    ".xml": XML,
    ".doc": OLD_OFFICE,
    ".xlsx": SPREADSHEET,
    ".xls": SPREADSHEET,
    ".ods": SPREADSHEET,
    ".pptx": SLIDES,
    ".ppt": SLIDES,
    ".zip": ZIP,
    ".tar": TAR,
    ".tgz": TAR,
    ".tbz2": TAR,
    ".txz": TAR,
    ".7z": SEVEN_ZIP,
    ".rar": RAR,
    ".lz4": LZ4,
    ".png": IMAGE,
    ".jpg": IMAGE,
    ".jpeg": IMAGE,
    ".gif": IMAGE,
    ".tif": IMAGE,
    ".tiff": IMAGE,
    ".webp": IMAGE,
    ".mp3": MEDIA,
    ".mp4": MEDIA,
    ".wav": MEDIA,
    ".exe": PROGRAM,
    ".sqlite": SQLITE,
    ".db": SQLITE,
    ".pkl": PICKLE,
    ".pt": PICKLE,
    ".pth": PICKLE,
    ".npy": NUMPY,
    ".npz": NUMPY,
    ".h5": HDF5,
    ".hdf5": HDF5,
    ".arrow": ARROW,
    ".safetensors": MODEL,
    ".gguf": MODEL,
}

# Their bytes are those of text, which may be wanted as it is.
_READABLE = (CSV, TSV, HTML, XML)

# A larger share of control characters is no text; in random bytes it is 10 %. Terminals write
# escapes, and old manual pages backspaces.
_MOST_CONTROLS = 0.05
_CONTROLS = bytes(set(range(32)) - set(b"\b\t\n\v\f\r\x1b"))


def type_of_name(file: Path) -> FileType | None:
    """Return what a file is by its name, None if it may be text.

    A name is not enough: europarl.pt is Portuguese, or a file of PyTorch.
    """
    if NAME_OF_DUMP in file.name:
        return DUMP
    stem = file.stem if file.suffix in COMPRESSIONS else file.name
    kind = TYPE_OF_SUFFIX.get(Path(stem).suffix.lower())
    if kind is None:
        return None
    try:
        with opened(file) as (content, _):
            beginning = content.read(BEGINNING_BYTES)
    except DamagedFile:
        return kind
    if kind in _READABLE:
        return type_of_content(beginning) or kind
    return None if _is_text(beginning) else kind


def _is_text(beginning: bytes) -> bool:
    """Return whether the first bytes are UTF-8 text and of no other type."""
    try:
        is_whole = len(beginning) < BEGINNING_BYTES  # else the last character may be cut
        codecs.getincrementaldecoder("utf-8")().decode(beginning, final=is_whole)
    except UnicodeDecodeError:
        return False
    has_controls = len(beginning.translate(None, _CONTROLS)) < len(beginning)
    return not has_controls and type_of_content(beginning) is None


def type_of_content(beginning: bytes) -> FileType | None:
    """Return what a file is by its first `BEGINNING_BYTES`, None if it may be text."""
    if beginning.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return next((kind for mark, kind in _ZIP_CONTENT.items() if mark in beginning), ZIP)
    if beginning[257:262] == b"ustar":
        return TAR
    if beginning[4:8] == b"ftyp" and 0 in beginning[:4]:
        return MEDIA
    for mark, kind in _MARKS.items():
        if beginning.startswith(mark):
            return kind
    has_controls = any(byte in _CONTROLS for byte in beginning[:64])
    for mark, kind in _SHORT_MARKS.items():
        if has_controls and beginning.startswith(mark):
            return IMAGE if beginning[8:12] == b"WEBP" else kind
    return None


def compression_of(beginning: bytes) -> str | None:
    """Return the suffix of the compression that a file has by its first bytes."""
    return next((name for mark, name in _COMPRESSED.items() if beginning.startswith(mark)), None)


def refuse_name(file: Path) -> None:
    """Refuse a file whose name says that it is not plain text, and whose bytes do not deny it.

    Raises:
        NotText: It is not.
    """
    if kind := type_of_name(file):
        also = f"; to read its lines as they are: text:{file}" if kind in _READABLE else ""
        raise NotText(f"{file}: {kind.what}, not text; {remedy_of(kind, file)}{also}")


def refuse_content(file: Path, beginning: bytes, *, is_stored: bool) -> None:
    """Refuse content that is not plain text, by its first `BEGINNING_BYTES`.

    Args:
        file: For the message.
        beginning: The first bytes.
        is_stored: Whether they are those on the disk, where a name may announce a compression.

    Raises:
        NotText: It is of another type, or compressed under a name that does not say so.
    """
    if kind := type_of_content(beginning):
        raise NotText(f"{file}: {kind.what}, not text; {remedy_of(kind, file)}")
    suffix = compression_of(beginning)
    if suffix is None or (is_stored and suffix == file.suffix):
        return
    if not is_stored:
        raise NotText(f"{file}: compressed twice ({suffix[1:]} inside); decompress it once")
    name = file.with_suffix("") if file.suffix in COMPRESSIONS else file
    raise NotText(
        f"{file}: compressed ({suffix[1:]}), which its name does not say; rename it: "
        f"mv {_quoted(file)} {_quoted(Path(f'{name}{suffix}'))}"
    )


def refuse_other_encoding(file: Path, beginning: bytes) -> None:
    """Refuse content whose control characters or byte-order mark show that it is not UTF-8.

    Raises:
        CorpusError: It is UTF-16 or UTF-32.
        NotText: It is binary data.
    """
    if encoding := encoding_of_mark(beginning) or encoding_of_zeros(beginning):
        raise CorpusError(
            f"{file}: is {encoding}, not UTF-8; convert it: {conversion(file, encoding)}"
        )
    num_controls = len(beginning) - len(beginning.translate(None, _CONTROLS))
    if num_controls > max(FEWEST_ZEROS, _MOST_CONTROLS * len(beginning)):
        raise NotText(
            f"{file}: binary data, not text ({num_controls:,} of its first {len(beginning):,} "
            "bytes are control characters); leave it out"
        )


def remedy_of(kind: FileType, file: Path) -> str:
    """Return how to get at the text of a file, with its name in the command."""
    return kind.remedy.format(file=_quoted(file), plain=file)


def _quoted(file: Path) -> str:
    return shlex.quote(str(file))
