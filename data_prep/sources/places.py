"""Find the files of a source, detect their kind, and refuse those that are not text."""

import os
import re
import shlex
from pathlib import Path

from data_prep.files.program import shell_command
from data_prep.sources.source import CorpusError, DamagedFile, NotText
from data_prep.sources.streams import COMPRESSIONS, opened
from data_prep.sources.wikiextractor import BEGINNING_OF_ARTICLE

KIND_OF_SUFFIX = {
    ".txt": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
}
_EXTRACTED_NAME = re.compile(r"wiki_\d+")
# In the names of its parts ("enwiki-...-pages-articles1.xml-p1p41242.bz2") and of its index.
_NAME_OF_DUMP = "-pages-articles"

_DUMP = (
    "a Wikipedia dump; run WikiExtractor on it and give the folder of its output, or take the "
    "articles from the Hub: --corpus hub:wikimedia/wikipedia:config=20231101.en"
)
_BY_PANDOC = "extract its text: pandoc -t plain --wrap=none {file} -o {file}.txt"
_TAR = "a tar archive; unpack it and name what is inside: tar -xf {file} -C FOLDER"
_HDF5 = (
    "an HDF5 file; export its text as JSON Lines (.jsonl); pre-training shards of other programs "
    f"are converted by {shell_command('data', 'import')}"
)
# What files that are not plain text are, and how to get at their text.
_NO_TEXT = {
    ".pdf": "a PDF document; extract its text: pdftotext {file}",
    ".docx": f"a Word document; {_BY_PANDOC}",
    ".odt": f"an OpenDocument file; {_BY_PANDOC}",
    ".epub": f"an EPUB book; {_BY_PANDOC}",
    ".rtf": f"an RTF document; {_BY_PANDOC}",
    **dict.fromkeys((".html", ".htm"), f"an HTML page; {_BY_PANDOC}"),
    ".xml": "an XML file; extract its text, or read its lines as they are: text:{file}",
    ".zip": "a ZIP archive; unpack it and name what is inside: unzip {file} -d FOLDER",
    **{".tar": _TAR, ".tgz": _TAR, ".h5": _HDF5, ".hdf5": _HDF5},
}


def is_path(place: str) -> bool:
    """Return whether a file or folder has this name."""
    try:
        return bool(place) and Path(place).exists()
    except (OSError, ValueError):  # too long, in a folder that may not be entered, or with a NUL
        return False


def files_below(folder: Path) -> list[Path]:
    """Return all files below a folder that are not hidden, in order of their paths.

    Links are followed, and a folder that is reached twice is read once. Broken links are included,
    so that reading reports them; pipes and sockets are not.

    Raises:
        CorpusError: A folder cannot be listed.
    """

    def refuse(error: OSError) -> None:
        raise CorpusError(
            f"{error.filename}: cannot be listed ({error.strerror}); grant permission, or name the "
            "files inside it"
        ) from error

    seen: set[tuple[int, int]] = set()
    found: list[Path] = []
    for place, folders, names in os.walk(folder, onerror=refuse, followlinks=True):
        stat = Path(place).stat()
        if (stat.st_dev, stat.st_ino) in seen:
            folders.clear()
            continue
        seen.add((stat.st_dev, stat.st_ino))
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [Path(place, name) for name in names if not name.startswith(".")]
    return sorted(
        (file for file in found if file.is_file() or not file.exists()), key=Path.as_posix
    )


def kind_of(file: Path) -> str | None:
    """Return the kind of a file by its name, of WikiExtractor's by its beginning."""
    stem = file.stem if file.suffix in COMPRESSIONS else file.name
    if _EXTRACTED_NAME.fullmatch(stem):
        return "jsonl" if _beginning_of(file).startswith(b"{") else "wikiextractor"
    return None if _NAME_OF_DUMP in stem else KIND_OF_SUFFIX.get(Path(stem).suffix.lower())


def kind_of_text(files: tuple[Path, ...]) -> str:
    """Return the kind of files that seem to be text: files of WikiExtractor can have any name."""
    is_extracted = _beginning_of(files[0]).startswith(BEGINNING_OF_ARTICLE)
    return "wikiextractor" if is_extracted else "text"


def refuse_name(file: Path) -> None:
    """Refuse a file whose name says that it is not plain text.

    Raises:
        NotText: It is not.
    """
    stem = file.stem if file.suffix in COMPRESSIONS else file.name
    known = _DUMP if _NAME_OF_DUMP in stem else _NO_TEXT.get(Path(stem).suffix.lower())
    if known:
        raise NotText(f"{file}: {known.format(file=shlex.quote(str(file)))}")


def _beginning_of(file: Path) -> bytes:
    try:
        with opened(file) as (content, _):
            beginning: bytes = content.read1(len(BEGINNING_OF_ARTICLE))
            return beginning
    except DamagedFile:
        return b""  # reading it will report the damage
