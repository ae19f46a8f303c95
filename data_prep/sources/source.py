"""The interface of a source of documents, and the base class of sources made of files.

One process reads and decodes the files, `read`; workers do the rest, from `paragraphs` on.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple

from pydantic import Field

from data_prep.files.errors import UserError
from data_prep.settings import DamagedFiles


class CorpusError(UserError):
    """The text cannot be used: one line that names the place and the remedy."""


class CannotReadOn(CorpusError):
    """The same sources may be read on later, or with damaged_files=skip."""


class Position(NamedTuple):
    """How far a source was read: number of finished files, items of the next one."""

    file: int
    record: int


BEGINNING = Position(0, 0)

# Reasons of `Skipped`.
DAMAGED, NOT_A_TEXT_FILE = "file cut short or damaged", "not a text file"
INVALID_UTF8 = "not valid UTF-8"
EXPECTED_SKIPS = (DAMAGED, NOT_A_TEXT_FILE)  # allowed by damaged_files, no fault of the text

# Takes the place of two spaces within a sentence, where the Hub's Wikipedia has lost a template.
GAP, _SPACES = "\ufffc", re.compile(r"""(?<=[^\s.!?:"'”’»)\]。！？؟।])  +(?=\S)""")

LONGEST_PARAGRAPH = 1 << 20  # characters; some data sets hold a whole book in one line


class Skipped(NamedTuple):
    """Something that was left out; counts are kept by reason, so it has no varying parts."""

    file: str
    line: int  # or the number of the document; 0 is the whole file
    reason: str


class Document(NamedTuple):
    """A document, also one of which nothing could be read: its number counts."""

    text: str  # a paragraph a line
    file: str
    line: int  # the first line, or the number of the document
    read_bytes: int  # so far; of compressed files the compressed bytes
    skipped: tuple[Skipped, ...] = ()
    continues: bool = False  # the document before it, which is too long for one
    end: Position = BEGINNING  # `read` continues here with the next one
    is_record: bool = True  # False: nothing but what was left out between documents


def left_out(file: str | Path, line: int, reason: str, read_bytes: int) -> Document:
    """Return what was left out between documents, in the place of one."""
    place = Skipped(str(file), line, reason)
    return Document("", str(file), line, read_bytes, (place,), is_record=False)


class DamagedFile(Exception):
    """A file cannot be read to its end."""

    def __init__(self, line: int, reason: object):
        super().__init__(line, " ".join(str(reason).split()) or type(reason).__name__)
        self.line, self.reason = self.args


class NotText(DamagedFile):
    """A file is not text, as its first bytes show."""


@dataclass(frozen=True)
class Source(ABC):
    """A stream of documents and its description. Can be pickled."""

    name: str  # as the user gave it
    # The number of uses of each document; `EvenSample` takes nothing of a smaller share.
    weight: Annotated[float, Field(ge=1e-6, le=1000)]

    libraries: ClassVar[tuple[str, ...]] = ()  # packages that read it
    unit: ClassVar[str] = "documents"  # what is counted to judge how much is skipped
    licence: ClassVar[str] = "that of the text files"  # of the text, as far as it is known

    @property
    @abstractmethod
    def description(self) -> str:
        """Return the description for the manifest."""

    @property
    @abstractmethod
    def num_bytes(self) -> int | None:
        """Return the bytes to read, None if unknown."""

    @abstractmethod
    def identity(self) -> list[list[object]]:
        """Return what must not change during a build: one entry for each file."""

    @abstractmethod
    def read(self, start: Position = BEGINNING) -> Iterator[Document]:
        """Yield the documents from `start` on, and what is left out between them.

        Raises:
            CorpusError: A file is damaged, or is not of the stated kind.
        """

    @property
    def is_wikipedia(self) -> bool:
        """Whether templates have left holes in the sentences."""
        return False

    def paragraphs(self, document: Document) -> list[str]:
        """Return the paragraphs of a document: one line each, single spaces, never empty."""
        text = _SPACES.sub(GAP, document.text) if self.is_wikipedia else document.text
        return paragraphs_of(text)


@dataclass(frozen=True)
class FileSource(Source):
    """A source that is a list of files."""

    files: tuple[Path, ...]
    damaged_files: DamagedFiles
    left_out: str = ""  # counts of what else the folder holds

    kind: ClassVar[str] = "files"

    @abstractmethod
    def records(self, file: Path) -> Iterator[Document]:
        """Yield the documents of one file, with the bytes that were read of this file.

        Raises:
            DamagedFile: It cannot be read to its end.
            CorpusError: It is not of this kind.
        """

    @property
    def description(self) -> str:
        """Return name, kind, number of files and bytes."""
        return f"{self.name} ({len(self.files)} {self.kind}, {self.num_bytes:,} bytes)"

    @property
    def num_bytes(self) -> int:
        """Return the size of all files, as they are on the disk."""
        return sum(file_size(file) for file in self.files)

    def identity(self) -> list[list[object]]:
        """Return path, size and modification time of every file."""
        return [
            [str(file), file_size(file), file.stat().st_mtime_ns if file.exists() else 0]
            for file in self.files
        ]

    def read(self, start: Position = BEGINNING) -> Iterator[Document]:
        """Yield the documents of one file after the other; see `Source`."""
        finished_bytes = sum(file_size(file) for file in self.files[: start.file])
        for number, file in enumerate(self.files[start.file :], start=start.file):
            for record, found in enumerate(self._readable(file), start=1):
                if (end := Position(number, record)) > start:
                    read = finished_bytes + found.read_bytes
                    yield found._replace(read_bytes=read, end=end)
            finished_bytes += file_size(file)

    def _readable(self, file: Path) -> Iterator[Document]:
        """Yield the documents of one file up to its damage, if damaged files are skipped."""
        try:
            yield from self.records(file)
        except DamagedFile as error:
            if self.damaged_files == "stop":
                raise CannotReadOn(
                    f"{file}: cannot be read after line {error.line}: {error.reason}; repair the "
                    "file or leave it out, or continue without its rest: --data.damaged_files skip"
                ) from error
            reason = NOT_A_TEXT_FILE if isinstance(error, NotText) else DAMAGED
            yield left_out(file, error.line, reason, file_size(file))


def paragraphs_of(text: str) -> list[str]:
    """Return the lines of a text that are not blank, with single spaces; long ones in pieces."""
    paragraphs: list[str] = []
    for line in text.split("\n"):
        paragraph = " ".join(line.split())
        while len(paragraph) > LONGEST_PARAGRAPH:  # cut at a space if there is one
            space = paragraph.rfind(" ", 1, LONGEST_PARAGRAPH + 1)
            end = space if space > 0 else LONGEST_PARAGRAPH
            paragraphs.append(paragraph[:end])
            paragraph = paragraph[end + (space > 0) :]
        if paragraph:
            paragraphs.append(paragraph)
    return paragraphs


def file_size(file: Path) -> int:
    """Return the size of a file, 0 if it is missing, which reading reports."""
    return file.stat().st_size if file.exists() else 0
