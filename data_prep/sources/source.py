"""The interface of a source of documents, and the base class of sources made of files.

One process reads and many work: `raw_documents` streams undecoded documents and does as little as
possible; `parse` turns one of them into paragraphs, in any process.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from data_prep.files.errors import UserError
from data_prep.settings import DamagedFiles


class CorpusError(UserError):
    """The text cannot be used: one line that names the place and the remedy."""


class NotText(CorpusError):
    """A file is of another type than text, as its first bytes or its name show."""


class Position(NamedTuple):
    """How far a source was read: number of finished files, raw documents of the next one."""

    file: int
    record: int


BEGINNING = Position(0, 0)

# Reasons of `Skipped`.
DAMAGED, NOT_A_TEXT_FILE = "file cut short or damaged", "not a text file"
INVALID_UTF8 = "not valid UTF-8"
EXPECTED_SKIPS = (DAMAGED, NOT_A_TEXT_FILE)  # allowed by damaged_files, no fault of the text

SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-6, 1000  # `EvenSample` takes nothing of a smaller share

LONGEST_PARAGRAPH = 1 << 20  # characters; some data sets hold a whole book in one line


class Skipped(NamedTuple):
    """Something that was left out; counts are kept by reason, so it has no varying parts."""

    file: str
    line: int  # or the number of the raw document; 0 is the whole file
    reason: str


class FileRecord(NamedTuple):
    """A raw document from the reader of one file."""

    content: Any  # undecoded and cheap to pickle: bytes, a list of them, text
    line: int  # the first line, or the number of the document
    read_bytes: int  # of this file, so far
    cut: bool = False  # the rest of a document that is too long follows as the next one


class RawDocument(NamedTuple):
    """A document before it is parsed."""

    content: Any
    file: str
    line: int
    end: Position  # `raw_documents` continues here with the next one
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
    """A stream of documents and its description. Can be pickled."""

    name: str  # as the user gave it
    weight: float

    libraries: ClassVar[tuple[str, ...]] = ()  # packages that read it
    unit = "documents"  # what is skipped, and counted to judge how much is skipped

    @property
    @abstractmethod
    def description(self) -> str:
        """Return the description for the manifest."""

    @property
    @abstractmethod
    def licence(self) -> str:
        """Return the licence of the text, as far as it is known."""

    @property
    @abstractmethod
    def num_bytes(self) -> int | None:
        """Return the bytes to read, None if unknown."""

    @abstractmethod
    def identity(self) -> list[list[object]]:
        """Return what must not change during a build: one entry for each file."""

    @abstractmethod
    def raw_documents(self, start: Position = BEGINNING) -> Iterator[RawDocument | Skipped]:
        """Yield the raw documents from `start` on, and what is left out between them.

        Raises:
            CorpusError: A file is damaged, or is not of the stated kind.
        """

    @abstractmethod
    def parse(self, raw: RawDocument) -> Parsed:
        """Return the paragraphs of a raw document."""


@dataclass(frozen=True)
class FileSource(Source):
    """A source that is a list of files."""

    files: tuple[Path, ...]
    damaged_files: DamagedFiles
    left_out: str = ""  # counts of what else the folder holds

    kind = "files"

    @abstractmethod
    def records(self, file: Path) -> Iterator[FileRecord | Skipped]:
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
        """Return that the files decide."""
        return "that of the text files"

    @property
    def num_bytes(self) -> int:
        """Return the size of all files, as they are on the disk."""
        return sum(file_size(file) for file in self.files)

    def identity(self) -> list[list[object]]:
        """Return path, size and modification time of every file."""
        return [[str(file), *_size_and_time(file)] for file in self.files]

    def raw_documents(self, start: Position = BEGINNING) -> Iterator[RawDocument | Skipped]:
        """Yield the raw documents of one file after the other; see `Source`."""
        finished_bytes = sum(file_size(file) for file in self.files[: start.file])
        for number, file in enumerate(self.files[start.file :], start=start.file):
            num_done = start.record if number == start.file else 0
            record = 0
            for found in self._records_and_damage(file):
                if isinstance(found, Skipped):
                    if record >= num_done:
                        yield found
                    continue
                record += 1
                if record > num_done:
                    end = Position(number, record)
                    read = finished_bytes + found.read_bytes
                    yield RawDocument(found.content, str(file), found.line, end, read, found.cut)
            finished_bytes += file_size(file)

    def _records_and_damage(self, file: Path) -> Iterator[FileRecord | Skipped]:
        try:
            yield from self.records(file)
        except DamagedFile as error:
            if self.damaged_files == "skip":
                yield Skipped(str(file), error.line, DAMAGED)
                return
            raise CorpusError(
                f"{file}: cannot be read after line {error.line}: {error.reason}; repair the file "
                "or leave it out, or continue without its rest: --damaged-files skip"
            ) from error
        except NotText:
            if self.damaged_files == "skip":
                yield Skipped(str(file), 0, NOT_A_TEXT_FILE)
                return
            raise


def weight_of(name: str, digits: str) -> float:
    """Return the weight in the name of a source.

    Raises:
        CorpusError: It is not a number, too small or too large.
    """
    try:
        weight = float(digits)
    except ValueError:
        weight = 0.0
    if not SMALLEST_WEIGHT <= weight <= LARGEST_WEIGHT:
        raise CorpusError(
            f"{name}: weight={digits} is not a number from {SMALLEST_WEIGHT:f} to "
            f"{LARGEST_WEIGHT}; it is the number of uses of each document"
        )
    return weight


def paragraphs_of(text: str) -> list[str]:
    """Return the lines of a text that are not blank, with single spaces; long ones in pieces."""
    paragraphs: list[str] = []
    for line in text.split("\n"):
        if paragraph := " ".join(line.split()):
            if len(paragraph) > LONGEST_PARAGRAPH:
                paragraphs += _pieces_of(paragraph)
            else:
                paragraphs.append(paragraph)
    return paragraphs


def _pieces_of(paragraph: str) -> Iterator[str]:
    """Yield a paragraph in pieces that are short enough, cut at spaces if there are any."""
    start = 0
    while len(paragraph) - start > LONGEST_PARAGRAPH:
        space = paragraph.rfind(" ", start + 1, start + LONGEST_PARAGRAPH + 1)
        end = space if space > 0 else start + LONGEST_PARAGRAPH
        yield paragraph[start:end]
        start = end + (space > 0)
    yield paragraph[start:]


def _size_and_time(file: Path) -> tuple[int, int]:
    """Return size and modification time; zeros if the file is missing, which reading reports."""
    try:
        stat = file.stat()
    except OSError:
        return 0, 0
    return stat.st_size, stat.st_mtime_ns


def file_size(file: Path) -> int:
    """Return the size of a file, 0 if it is missing."""
    return _size_and_time(file)[0]
