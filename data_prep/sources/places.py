"""Find the files of a source and detect their kind by name and, where needed, by content."""

import os
import re
from pathlib import Path

from data_prep.sources.compression import COMPRESSIONS, opened
from data_prep.sources.file_types import BEGINNING_BYTES, NAME_OF_DUMP, refuse_content
from data_prep.sources.source import CorpusError, DamagedFile, NotText
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


def is_path(place: str) -> bool:
    """Return whether a file or folder has this name."""
    try:
        return bool(place) and Path(place).exists()
    except OSError:  # too long, or in a folder that may not be entered
        return False


def files_below(folder: Path) -> list[Path]:
    """Return all files below a folder that are not hidden, in order of their paths.

    Links are followed, and a folder that is reached twice is read once. Broken links are included,
    so that reading reports them; pipes and sockets are not.

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
        found += [Path(place, name) for name in names if not name.startswith(".")]
    return sorted(
        (file for file in found if file.is_file() or not file.exists()), key=Path.as_posix
    )


def kind_of(file: Path) -> str | None:
    """Return the kind of a file by its name, of WikiExtractor's by its beginning."""
    stem = file.stem if file.suffix in COMPRESSIONS else file.name
    if _EXTRACTED_NAME.fullmatch(stem):
        return "jsonl" if _beginning_of(file).startswith(b"{") else "wikiextractor"
    return None if NAME_OF_DUMP in stem else KIND_OF_SUFFIX.get(Path(stem).suffix.lower())


def kind_of_text(files: tuple[Path, ...]) -> str:
    """Return the kind of files that seem to be text: files of WikiExtractor can have any name."""
    is_extracted = _beginning_of(files[0]).startswith(BEGINNING_OF_ARTICLE)
    return "wikiextractor" if is_extracted else "text"


def refuse_stored(files: tuple[Path, ...]) -> None:
    """Refuse files whose bytes on the disk begin as no text does, before anything is read.

    What a compressed file holds is checked when it is read.

    Raises:
        CorpusError: One is binary or has another encoding.
    """
    for file in files:
        if file.suffix in COMPRESSIONS or not file.is_file():
            continue  # reading it will report what is wrong
        try:
            with file.open("rb", buffering=0) as stream:
                refuse_content(file, stream.read(BEGINNING_BYTES))
        except OSError:
            continue
        except NotText as error:
            raise NotText(f"{error}; to leave such files out: --damaged-files skip") from None


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
