"""Find the files of a source, detect their kind, and refuse those that are not text."""

import os
import re
from pathlib import Path

from data_prep.files.program import shell_command
from data_prep.files.quoting import is_unicode, plain
from data_prep.sources.source import CorpusError, DamagedFile
from data_prep.sources.streams import COMPRESSIONS, opened

KIND_OF_SUFFIX = {
    ".txt": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
}
EXTRACTED_NAME, BEGINNING_OF_ARTICLE = re.compile(r"wiki_\d+"), b"<doc "
# Also in the names of parts of a dump of Wikipedia: "articles1.xml-p1p41242.bz2".
_NO_TEXT = re.compile(r"\.(pdf|docx|odt|epub|rtf|html?|xml|zip|tar|tgz|h5|hdf5)\b", re.IGNORECASE)


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
        CorpusError: A folder cannot be listed, or a name is not UTF-8.
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
    if wrong := [one for one in found if not is_unicode(str(one))]:
        raise CorpusError(f"{plain(str(wrong[0]))}: its name is not UTF-8; rename it")
    return sorted((one for one in found if one.is_file() or not one.exists()), key=Path.as_posix)


def kind_of(file: Path) -> str | None:
    """Return the kind of a file by its name, of WikiExtractor's by its beginning."""
    stem = file.stem if file.suffix.lower() in COMPRESSIONS else file.name
    if EXTRACTED_NAME.fullmatch(stem):
        return "jsonl" if beginning_of(file).startswith(b"{") else "wikiextractor"
    return KIND_OF_SUFFIX.get(Path(stem).suffix.lower())


def refuse_name(file: Path) -> None:
    """Refuse a file whose name says that it is not plain text.

    Raises:
        CorpusError: It is not.
    """
    if _NO_TEXT.search(file.name):
        raise CorpusError(
            f"{file}: not plain text; extract its text, for example with pdftotext, pandoc -t "
            "plain, unzip, tar -xf or WikiExtractor, and give that; HDF5 shards of other programs: "
            f"{shell_command('data', 'import')}; to read it as it is: text:{file}"
        )


def beginning_of(file: Path) -> bytes:
    """Return the first bytes of a file, as many as `BEGINNING_OF_ARTICLE` has."""
    try:
        with opened(file) as (content, _):
            beginning: bytes = content.read1(len(BEGINNING_OF_ARTICLE))
            return beginning
    except DamagedFile:
        return b""  # reading it will report the damage
