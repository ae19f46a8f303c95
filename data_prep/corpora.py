"""Say where documents come from: text files, folders of them, or the installed Python's own prose.

A document is a list of paragraphs, a paragraph one line of text with single spaces.
"""

import bz2
import gzip
import io
import itertools
import lzma
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from data_prep import python_docs

Document = list[str]

PYTHON_DOCS = "python-docs"


class CorpusError(ValueError):
    """Something is wrong with the text: one line that names the place and what to do."""


@dataclass(frozen=True)
class Corpus:
    """A stream of documents and what is known of it."""

    documents: Iterator[Document]
    source: str
    licence: str


def open_corpus(name: str) -> Corpus:
    """Open a corpus: "python-docs", a text file (also .xz, .gz, .bz2) or a folder of *.txt files.

    Text is UTF-8, one paragraph a line, with an empty line between documents; every file begins a
    document of its own. Files are read as a stream.

    Raises:
        CorpusError: The file does not exist or the folder holds no text file. While reading: a
            file cannot be read or is not UTF-8.
    """
    if name == PYTHON_DOCS:
        licence = "those of Python and of the installed packages"
        return Corpus(python_docs.documents(), python_docs.source(), licence)
    path = Path(name)
    if not path.exists():
        raise CorpusError(
            f"{name}: no such file or folder; give a text file, a folder of *.txt files "
            f'or the built-in corpus "{PYTHON_DOCS}"'
        )
    files = sorted(path.rglob("*.txt")) if path.is_dir() else [path]
    if not files:
        raise CorpusError(f"{name}: the folder holds no *.txt file; add some or name a single file")
    documents = itertools.chain.from_iterable(map(_documents_in, files))
    size = sum(file.stat().st_size for file in files)
    source = f"{name} ({len(files)} text files, {size:,} bytes)"
    return Corpus(documents, source, "that of the text files")


def describe(names: Iterable[str]) -> str:
    """Return where the text of these corpora comes from, as it is now.

    Raises:
        CorpusError: One of them does not exist or holds no text.
    """
    return "; ".join(open_corpus(name).source for name in names)


def first_words(documents: Iterable[Document], max_words: int | None) -> Iterator[Document]:
    """Yield documents until they hold `max_words` words, cut after the paragraph that does.

    None yields everything.
    """
    num_words = 0
    for document in documents:
        if max_words is None:
            yield document
            continue
        taken: Document = []
        for paragraph in document:
            taken.append(paragraph)
            num_words += len(paragraph.split())
            if num_words >= max_words:
                yield taken
                return
        yield taken


def _documents_in(file: Path) -> Iterator[Document]:
    """Yield the documents of one text file."""
    document: Document = []
    for line in _lines(file):
        if paragraph := " ".join(line.split()):
            document.append(paragraph)
        elif document:
            yield document
            document = []
    if document:
        yield document


def _lines(file: Path) -> Iterator[str]:
    number = 0
    try:
        with _open(file) as stream:
            for number, line in enumerate(stream, start=1):
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise CorpusError(
            f"{file}, line {number}: not valid UTF-8 ({error.reason}); convert the file, "
            "for example with iconv -t UTF-8"
        ) from error
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise CorpusError(
            f"{file}: cannot be read after line {number}: {error}; "
            "check that the file is complete and readable"
        ) from error


def _open(file: Path) -> io.BufferedIOBase:
    match file.suffix:
        case ".xz":
            return lzma.open(file)
        case ".gz":
            return gzip.open(file)
        case ".bz2":
            return bz2.open(file)
        case _:
            return file.open("rb")
