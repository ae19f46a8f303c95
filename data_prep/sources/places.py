"""Find the files of a source and detect their kind by name and, where needed, by content."""

import os
import re
from pathlib import Path

from data_prep.sources.compression import COMPRESSIONS, opened
from data_prep.sources.source import CorpusError, DamagedFile
from data_prep.sources.wikiextractor import BEGINNING_OF_ARTICLE

KIND_OF_SUFFIX = {
    ".txt": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".xml": "wikipedia",
}
_EXTRACTED_NAME = re.compile(r"wiki_\d+")
_PART_OF_DUMP = re.compile(r"-p\d+p\d+$")  # "...-articles1.xml-p1p41242.bz2": pages 1 to 41242
_INDEX_OF_DUMP = re.compile(r"-multistream-index\d*\.txt")  # published beside a dump; holds no text


def is_path(place: str) -> bool:
    """Return whether a file or folder has this name."""
    try:
        return bool(place) and Path(place).exists()
    except OSError:  # too long, or in a folder that may not be entered
        return False


def files_below(folder: Path) -> list[Path]:
    """Return all files below a folder that are not hidden, in order of their paths.

    Links are followed. Broken links are included, so that reading reports them. A folder that is
    reached twice is read once.

    Raises:
        CorpusError: A folder cannot be listed.
    """
    seen: set[tuple[int, int]] = set()
    found: list[Path] = []
    for place, folders, names in os.walk(folder, onerror=_refuse, followlinks=True):
        stat = Path(place).stat()
        if (stat.st_dev, stat.st_ino) in seen:
            folders.clear()
            continue
        seen.add((stat.st_dev, stat.st_ino))
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        files = (Path(place, name) for name in names if not name.startswith("."))
        found += [file for file in files if file.is_file() or not file.exists()]
    return sorted(found, key=Path.as_posix)


def kind_of(file: Path) -> str | None:
    """Return the kind of a file by its name, of WikiExtractor's by its beginning."""
    stem = file.stem if file.suffix in COMPRESSIONS else file.name
    if _EXTRACTED_NAME.fullmatch(stem):
        return "jsonl" if _beginning_of(file).startswith(b"{") else "wikiextractor"
    if _INDEX_OF_DUMP.search(stem):
        return None
    return KIND_OF_SUFFIX.get(Path(_PART_OF_DUMP.sub("", stem)).suffix)


def kind_of_text(files: tuple[Path, ...]) -> str:
    """Return the kind of files that seem to be text: files of WikiExtractor can have any name."""
    is_extracted = _beginning_of(files[0]).startswith(BEGINNING_OF_ARTICLE)
    return "wikiextractor" if is_extracted else "text"


def _beginning_of(file: Path) -> bytes:
    try:
        with opened(file) as (content, _):
            return content.read1(len(BEGINNING_OF_ARTICLE))
    except DamagedFile:
        return b""  # reading it will report the damage


def _refuse(error: OSError) -> None:
    raise CorpusError(
        f"{error.filename}: cannot be listed ({error.strerror}); grant permission, or name the "
        "files inside it"
    ) from error
