"""What every source of documents is, and what it gives.

Reading happens in one process and the work in many: `raw_documents` streams raw records and does
as little as possible, `parse` turns one of them into paragraphs, in any process.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from data_prep.settings import DamagedFiles


class CorpusError(ValueError):
    """Something is wrong with the text: one line that names the place and what to do."""


class Position(NamedTuple):
    """How far a source was read: files that are finished, and raw documents of the next one."""

    file: int
    record: int


BEGINNING = Position(0, 0)

LONGEST_PARAGRAPH = 1 << 20  # characters; some records hold a whole book in one line


class Skipped(NamedTuple):
    """Something that was left out. The reason has no varying parts: it is counted by."""

    file: str
    line: int  # or the number of the record; 0 is the whole file
    reason: str


class Record(NamedTuple):
    """A raw document as the reader of one file gives it."""

    content: Any  # something that can be pickled and costs little: bytes, a list of them, text
    line: int  # where it begins, or its number
    read_bytes: int  # of this file, so far
    cut: bool = False  # the rest of a document that is too long follows as another one


class RawDocument(NamedTuple):
    """A document before it is parsed."""

    content: Any
    file: str
    line: int
    end: Position  # from here `raw_documents` goes on with the next one
    read_bytes: int  # of the source, so far; of compressed files the compressed bytes
    cut: bool = False


class Parsed(NamedTuple):
    """The paragraphs of a document: one line each, single spaces, never empty."""

    paragraphs: list[str]
    skipped: list[Skipped]


class DamagedFile(Exception):
    """A file cannot be read to its end."""

    def __init__(self, line: int, reason: object):
        super().__init__(line, " ".join(str(reason).split()) or type(reason).__name__)
        self.line, self.reason = self.args


@dataclass(frozen=True)
class Source(ABC):
    """A stream of documents and what is known of it. Can be pickled."""

    name: str  # as the user gave it
    weight: float

    @property
    @abstractmethod
    def description(self) -> str:
        """Return what the manifest says about it."""

    @property
    @abstractmethod
    def licence(self) -> str:
        """Return what is known of the rights in the text."""

    @property
    @abstractmethod
    def num_bytes(self) -> int | None:
        """Return how much there is to read, None if that is unknown."""

    @abstractmethod
    def identity(self) -> list[list[object]]:
        """Return what must not change while a build is going on: one entry for each file."""

    @abstractmethod
    def raw_documents(self, start: Position = BEGINNING) -> Iterator[RawDocument | Skipped]:
        """Yield the raw documents from `start` on, and what is left out between them.

        Raises:
            CorpusError: A file is damaged, or not what the source says it is.
        """

    @abstractmethod
    def parse(self, raw: RawDocument) -> Parsed:
        """Return the paragraphs of a raw document."""


@dataclass(frozen=True)
class FileSource(Source):
    """A source that is a list of files."""

    files: tuple[Path, ...]
    damaged_files: DamagedFiles

    kind = "files"

    @abstractmethod
    def records(self, file: Path) -> Iterator[Record | Skipped]:
        """Yield the raw documents of one file.

        Raises:
            DamagedFile: It cannot be read to its end.
            CorpusError: It is not of this kind.
        """

    @property
    def description(self) -> str:
        """Return name, kind, number of files and bytes."""
        return f"{self.name} ({len(self.files)} {self.kind}, {self.num_bytes:,} bytes)"

    @property
    def licence(self) -> str:
        """Return that nothing is known."""
        return "that of the text files"

    @property
    def num_bytes(self) -> int:
        """Return the size of all files, as they are on the disk."""
        return sum(stored_bytes(file) for file in self.files)

    def identity(self) -> list[list[object]]:
        """Return path, size and time of change of every file."""
        return [[str(file), *_size_and_time(file)] for file in self.files]

    def raw_documents(self, start: Position = BEGINNING) -> Iterator[RawDocument | Skipped]:
        """Yield the raw documents of one file after the other; see `Source`."""
        finished_bytes = sum(stored_bytes(file) for file in self.files[: start.file])
        for number, file in enumerate(self.files[start.file :], start=start.file):
            passed_over = start.record if number == start.file else 0
            record = 0
            for found in self._records_and_damage(file):
                if isinstance(found, Skipped):
                    if record >= passed_over:
                        yield found
                    continue
                record += 1
                if record > passed_over:
                    end = Position(number, record)
                    read = finished_bytes + found.read_bytes
                    yield RawDocument(found.content, str(file), found.line, end, read, found.cut)
            finished_bytes += stored_bytes(file)

    def _records_and_damage(self, file: Path) -> Iterator[Record | Skipped]:
        try:
            yield from self.records(file)
        except DamagedFile as error:
            if self.damaged_files == "skip":
                yield Skipped(str(file), error.line, "file cut short or damaged")
                return
            raise CorpusError(
                f"{file}: cannot be read after line {error.line}: {error.reason}; repair the file "
                "or leave it out, or go on without its rest: --damaged-files skip"
            ) from error


def paragraphs_of(text: str) -> list[str]:
    """Return the lines of a text that hold words, with single spaces; long ones in pieces."""
    paragraphs: list[str] = []
    for line in text.split("\n"):
        if paragraph := " ".join(line.split()):
            if len(paragraph) > LONGEST_PARAGRAPH:
                paragraphs += _pieces_of(paragraph)
            else:
                paragraphs.append(paragraph)
    return paragraphs


def _pieces_of(paragraph: str) -> Iterator[str]:
    """Yield a paragraph in pieces that are short enough, cut at spaces where there are any."""
    start = 0
    while len(paragraph) - start > LONGEST_PARAGRAPH:
        space = paragraph.rfind(" ", start + 1, start + LONGEST_PARAGRAPH + 1)
        end = space if space > 0 else start + LONGEST_PARAGRAPH
        yield paragraph[start:end]
        start = end + (space > 0)
    yield paragraph[start:]


def _size_and_time(file: Path) -> tuple[int, int]:
    """Return bytes and time of change; zeros of a file that is gone: reading it will say so."""
    try:
        stat = file.stat()
    except OSError:
        return 0, 0
    return stat.st_size, stat.st_mtime_ns


def stored_bytes(file: Path) -> int:
    """Return the size of a file, 0 of one that is gone."""
    return _size_and_time(file)[0]
