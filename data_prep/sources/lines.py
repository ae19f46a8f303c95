"""Read lines of plain and compressed files of text."""

from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from data_prep.sources.compression import DAMAGE, OpenFile, opened
from data_prep.sources.file_types import BEGINNING_BYTES, refuse_content
from data_prep.sources.source import DamagedFile

_UTF8_MARK = b"\xef\xbb\xbf"


@contextmanager
def opened_text(file: Path) -> Iterator[OpenFile]:
    """Open a UTF-8 file and skip its byte-order mark, if there is one.

    Raises:
        DamagedFile: It cannot be opened, or the block cannot read it to its end.
        NotText: Its first bytes are not those of text.
        CorpusError: It is UTF-16 or UTF-32.
    """
    with opened(file) as found:
        beginning = found.content.peek(BEGINNING_BYTES)[:BEGINNING_BYTES]
        refuse_content(file, beginning)
        if beginning.startswith(_UTF8_MARK):
            found.content.read(len(_UTF8_MARK))
        yield found


def numbered_lines(stream: BufferedReader) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a stream with their numbers.

    Raises:
        DamagedFile: The stream cannot be read to its end.
    """
    number = 0
    try:
        for number, line in enumerate(stream, start=1):
            yield number, line
    except DAMAGE as error:
        raise DamagedFile(number, error) from error
