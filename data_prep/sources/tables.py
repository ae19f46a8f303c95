"""Tables with a column of text: JSON Lines, CSV, Parquet, and data sets of the Hub, streamed."""

import csv
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_prep.files.hub import connect_to_hub, reason_of
from data_prep.files.quoting import is_unicode
from data_prep.sources.places import EXTRACTED_NAME
from data_prep.sources.source import (
    BEGINNING,
    INVALID_UTF8,
    CannotReadOn,
    CorpusError,
    DamagedFile,
    Document,
    FileSource,
    Position,
    Skipped,
    Source,
)
from data_prep.sources.streams import BLOCK_BYTES, LONGEST_LINE, numbered_lines, opened_text


def document_of(
    text: object, file: str | Path, line: int, read_bytes: int, reason: str = ""
) -> Document:
    """Return the value of a text column as a document; empty where there is a reason to skip it."""
    if not reason:
        if isinstance(text, bytes):
            text = text.decode(errors="surrogateescape")
        if text is None:
            reason = "the text is null"
        elif not isinstance(text, str):
            reason = "the text column holds no text"
        elif not is_unicode(text):
            reason = INVALID_UTF8
        else:
            return Document(text, str(file), line, read_bytes)
    return Document("", str(file), line, read_bytes, (Skipped(str(file), line, reason),))


def check_column(place: str | Path, column: str, columns: Sequence[str]) -> None:
    """Check that a table has a column, and once.

    Raises:
        CorpusError: It does not.
    """
    if columns.count(column) > 1:
        raise CorpusError(f"{place}: two columns are called {column!r}; rename one")
    if column not in columns:
        raise CorpusError(
            f"{place}: has no column {column!r}, it has {', '.join(columns) or 'none'}; "
            f"say which one is the text: {place}:column=NAME"
        )


def csv_rows(
    lines: Iterable[str], needed: Iterable[str], delimiters: str = ",;\t"
) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of CSV as of RFC 4180, the header first, with the number of their last lines.

    Args:
        lines: The lines with their ends; a field in quotes may go on in the next one.
        needed: Names of columns.
        delimiters: What may separate fields: the first with which the header has these columns.

    Raises:
        csv.Error: A row is not CSV.
    """
    csv.field_size_limit(LONGEST_LINE)  # the default of the library is 131,072 characters
    lines = iter(lines)
    header = list(itertools.islice(lines, 1))  # of an empty file none
    columns = {mark: next(csv.reader(header, delimiter=mark), []) for mark in delimiters}
    fitting = [mark for mark in delimiters if {*needed} <= {*columns[mark]}]
    delimiter = fitting[0] if fitting else max(delimiters, key=lambda mark: len(columns[mark]))
    rows = csv.reader(itertools.chain(header, lines), delimiter=delimiter, strict=True)
    for row in rows:
        yield rows.line_num, row


@dataclass(frozen=True)
class JsonLines(FileSource):
    """One JSON object a line, the document in one of its fields."""

    column: str = "text"

    kind = "JSON Lines files"

    @property
    def is_wikipedia(self) -> bool:
        """Whether WikiExtractor wrote it."""
        return EXTRACTED_NAME.fullmatch(self.files[0].name.partition(".")[0]) is not None

    def records(self, file: Path) -> Iterator[Document]:
        """Yield the text of each line; the first line that is an object must have the column."""
        is_checked = False
        with opened_text(file) as (stream, read_bytes):
            for number, line in numbered_lines(stream):
                if line.isspace():
                    continue
                text, reason = None, ""
                try:
                    # Decoded here, because the library detects bytes with zeros as UTF-16.
                    record = json.loads(line.decode())
                except UnicodeDecodeError:
                    reason = INVALID_UTF8
                except (ValueError, RecursionError):
                    reason = "not valid JSON on one line"
                else:
                    if not isinstance(record, dict):
                        reason = "not a JSON object (of an array, jq -c '.[]' makes lines)"
                    elif self.column in record or not is_checked:
                        check_column(file, self.column, list(record))
                        text, is_checked = record[self.column], True
                    else:
                        reason = "the text column is missing"
                yield document_of(text, file, number, read_bytes(), reason)


@dataclass(frozen=True)
class CsvFiles(FileSource):
    """CSV as of RFC 4180, also with semicolons or tabs; the first row names the columns."""

    column: str = "text"

    kind = "CSV files"

    def records(self, file: Path) -> Iterator[Document]:
        """Yield the text of each row; a row of another length than the first is skipped."""
        number = 0  # of the last line of the row
        with opened_text(file) as (stream, read_bytes):
            # Some writers do not quote a \r, at which `csv` gives up.
            whole = (re.sub(rb"\r(?!\n)", b" ", line) for _, line in numbered_lines(stream))
            lines = (line.decode(errors="surrogateescape") for line in whole)
            rows = csv_rows(lines, [self.column], "\t,;" if ".tsv" in file.name.lower() else ",;\t")
            try:
                number, columns = next(rows, (0, [self.column]))  # an empty file has no rows
                check_column(file, self.column, columns)
                place = columns.index(self.column)
                for number, row in rows:
                    if len(row) == len(columns):
                        yield document_of(row[place], file, number, read_bytes())
                    elif row:
                        reason = "the row has another number of fields than the header"
                        yield document_of(None, file, number, read_bytes(), reason)
            except csv.Error as error:
                raise DamagedFile(number, error) from error


@dataclass(frozen=True)
class ParquetFiles(FileSource):
    """Parquet, the document in one of the columns."""

    column: str = "text"

    kind = "Parquet files"
    libraries = ("pyarrow",)

    def records(self, file: Path) -> Iterator[Document]:
        """Yield the text of each row."""
        import pyarrow
        from pyarrow import parquet

        row = 0
        try:
            size = file.stat().st_size
            with parquet.ParquetFile(file, pre_buffer=False, buffer_size=BLOCK_BYTES) as table:
                check_column(file, self.column, table.schema_arrow.names)
                rows = max(1, table.metadata.num_rows)
                for batch in table.iter_batches(256, columns=[self.column], use_threads=False):
                    for value in batch.column(0):
                        row += 1
                        text, reason = None, ""
                        try:
                            text = value.as_py()
                        except UnicodeDecodeError:
                            reason = INVALID_UTF8
                        # A share of the size: the columns of a row are spread over the file.
                        document = document_of(text, file, row, size * row // rows, reason)
                        # Others are not counted, so that a weight takes the rows that it took.
                        yield document._replace(is_record=text is not None)
        except (pyarrow.ArrowException, OSError) as error:
            raise DamagedFile(row, error) from error


@dataclass(frozen=True)
class HubDataset(Source):
    """One split of a data set, the document in one of its columns."""

    dataset: str
    config: str | None = None
    split: str = "train"
    revision: str | None = None
    column: str = "text"

    libraries = ("datasets",)
    licence = "see the card of the data set"

    @property
    def is_wikipedia(self) -> bool:
        """Whether it is that of Wikipedia."""
        return "wikipedia" in self.dataset.lower()

    @property
    def description(self) -> str:
        """Return the name that the user gave."""
        return f"{self.name} (Hugging Face Hub)"

    @property
    def num_bytes(self) -> None:
        """Return None: the Hub does not report it reliably."""
        return None

    def identity(self) -> list[list[object]]:
        """Return name and revision; without a revision the data may change on the Hub."""
        return [[self.dataset, self.config, self.split, self.revision, self.column]]

    def read(self, start: Position = BEGINNING) -> Iterator[Document]:
        """Yield the value of the text column of each row."""
        try:
            rows = self._open().skip(start.record)
            for number, row in enumerate(rows, start=start.record + 1):
                check_column(self.name, self.column, list(row))
                document = document_of(row[self.column], self.name, number, 0)
                yield document._replace(end=Position(0, number))
        except CorpusError:
            raise
        except Exception as error:  # reading over a network can raise anything
            reason = reason_of(error)
            raise CannotReadOn(f"{self.name}: cannot be read: {reason}; try again") from error

    def _open(self) -> Any:
        import datasets

        if not Path(self.dataset).exists():
            try:
                connect_to_hub()
            except OSError as error:
                raise CannotReadOn(
                    f"{self.name}: the Hugging Face Hub cannot be reached ({error}); download the "
                    "data set where there is a network and give its Parquet or JSON Lines files"
                ) from error
        return datasets.load_dataset(
            self.dataset, self.config, split=self.split, revision=self.revision, streaming=True
        )
