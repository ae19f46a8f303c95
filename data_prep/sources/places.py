"""Find the files of a source and detect their kind by name and, where needed, by content."""

import os
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from data_prep.sources.compression import COMPRESSIONS, opened
from data_prep.sources.file_types import (
    BEGINNING_BYTES,
    NAME_OF_DUMP,
    refuse_content,
    refuse_other_encoding,
)
from data_prep.sources.source import CorpusError, DamagedFile, NotText
from data_prep.sources.wikiextractor import BEGINNING_OF_ARTICLE

KIND_OF_SUFFIX = {
    ".txt": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
}
SHARD_FOLDER = "shard folder"
# What programs write, by some of the names in the folder; the first that fits.
_FOLDERS = (
    ({"run.json", "metrics.jsonl"}, "run folder"),
    ({"manifest.json", "tokenizer.json"}, SHARD_FOLDER),
    ({"config.json", "model.safetensors"}, "model folder"),
    ({"identity.json", "segments"}, "unfinished build"),
)
MOST_SUFFIXES = 4  # named in a message

_EXTRACTED_NAME = re.compile(r"wiki_\d+")


def is_path(place: str) -> bool:
    """Return whether a file or folder has this name."""
    try:
        return bool(place) and Path(place).exists()
    except OSError:  # too long, or in a folder that may not be entered
        return False


class Found(NamedTuple):
    """What lies below a folder."""

    files: list[Path]
    folders: list[tuple[Path, str]]  # written by programs and not entered, each with what it is

    def without(self, files: Iterable[Path]) -> "Found":
        """Return what else there is."""
        taken = set(files)
        return Found([file for file in self.files if file not in taken], self.folders)

    def described(self) -> str:
        """Return counts of files by suffix, and of folders by what they are."""
        counts = Counter(file.suffix or "without suffix" for file in self.files)
        parts = [f"{count:,} {suffix}" for suffix, count in counts.most_common(MOST_SUFFIXES)]
        if rest := sum(counts.values()) - sum(dict(counts.most_common(MOST_SUFFIXES)).values()):
            parts.append(f"{rest:,} other files")
        if self.folders:
            first, what = self.folders[0]
            more = f" and {len(self.folders) - 1:,} more" if len(self.folders) > 1 else ""
            parts.append(f"the {what} {first}{more}")
        return ", ".join(parts)


def files_below(folder: Path, *, follows_links: bool = False) -> Found:
    """Return all files below a folder that are not hidden, in order of their paths.

    Folders that programs have written, such as a run folder, hold no text and are not entered.
    Links within the folder are followed. Broken links are included, so that reading reports them. A
    folder that is reached twice is read once.

    Args:
        folder: Of a source.
        follows_links: Whether links may lead out of the folder.

    Raises:
        CorpusError: A folder cannot be listed, or a link leads out of the folder.
    """
    within = None if follows_links else folder.resolve()
    seen: set[tuple[int, int]] = set()
    found: list[Path] = []
    other: list[tuple[Path, str]] = []
    for place, folders, names in os.walk(folder, onerror=_refuse, followlinks=True):
        stat = Path(place).stat()
        if (stat.st_dev, stat.st_ino) in seen:
            folders.clear()
            continue
        seen.add((stat.st_dev, stat.st_ino))
        _refuse_outside(Path(place), within)
        if what := _written_by_a_program({*names, *folders}):
            other.append((Path(place), what))
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        files = (Path(place, name) for name in names if not name.startswith("."))
        for file in files:
            if file.is_file():
                _refuse_outside(file, within)
            elif file.exists():  # a pipe or a socket
                continue
            found.append(file)
    return Found(sorted(found, key=Path.as_posix), other)


def _refuse_outside(place: Path, folder: Path | None) -> None:
    """Refuse what a link gets from elsewhere: a folder of a stranger could name any file."""
    if folder is None or not place.is_symlink():
        return
    found = place.resolve()
    if not found.is_relative_to(folder):
        raise CorpusError(
            f"{place}: a link out of {folder}, to {found}; if it is meant, add :links=follow to "
            "the name of the source"
        )


def _written_by_a_program(names: set[str]) -> str | None:
    """Return what a folder is by the names in it, None for any folder."""
    return next((what for needed, what in _FOLDERS if needed <= names), None)


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
    """Refuse files whose bytes on the disk begin as no text does.

    Every file is checked before anything is read; what a compressed file holds, when it is read.

    Raises:
        CorpusError: One is of another type or encoding, or compressed in another way than its
            name says.
    """
    refused: list[CorpusError] = []
    for file in files:
        try:
            beginning = _stored_beginning(file)
            refuse_content(file, beginning, is_stored=True)
            if file.suffix not in COMPRESSIONS:
                refuse_other_encoding(file, beginning)
        except CorpusError as error:
            refused.append(error)
    if not refused:
        return
    more = ""
    if len(refused) > 1:
        more = f" ({len(refused):,} of {len(files):,} files are no text in UTF-8)"
    if len(files) > len(refused) and all(isinstance(error, NotText) for error in refused):
        more += "; or leave such files out: --damaged-files skip"
    raise type(refused[0])(f"{refused[0]}{more}")


def _stored_beginning(file: Path) -> bytes:
    """Return the first bytes on the disk; none where reading the file will report why not."""
    try:
        if not file.is_file():
            return b""
        with file.open("rb", buffering=0) as stream:
            return stream.read(BEGINNING_BYTES)
    except OSError:
        return b""


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
