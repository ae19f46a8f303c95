"""Tables with a column of text: JSON Lines, CSV and Parquet."""

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_prep.files.extras import require
from data_prep.files.quoting import is_unicode
from data_prep.sources.lines import numbered_lines, opened_text
from data_prep.sources.source import (
    INVALID_UTF8,
    CorpusError,
    DamagedFile,
    FileRecord,
    FileSource,
    Parsed,
    RawDocument,
    Skipped,
    paragraphs_of,
)

LONGEST_FIELD = 1 << 26  # characters of CSV
ROWS_PER_BATCH = 256


@dataclass(frozen=True)
class JsonLines(FileSource):
    """One JSON object a line, the document in one of its fields."""

    column: str = "text"

    kind = "JSON Lines files"

    def records(self, file: Path) -> Iterator[FileRecord | Skipped]:
        """Yield the undecoded lines; the first that is an object must have the column."""
        is_checked = False
        with opened_text(file) as (stream, read_bytes):
            for number, line in numbered_lines(stream):
                if line.isspace():
                    continue
                if not is_checked and isinstance(record := _json_object(line), dict):
                    if self.column not in record:
                        raise _no_column(file, self.column, list(record))
                    is_checked = True
                yield FileRecord(line, number, read_bytes())

    def parse(self, raw: RawDocument) -> Parsed:
        """Return the paragraphs of the text column."""
        record = _json_object(raw.content)
        if isinstance(record, str):
            return _skipped(raw, record)
        if self.column not in record:
            return _skipped(raw, "the text column is missing")
        return parsed_text(record[self.column], raw)


@dataclass(frozen=True)
class CsvFiles(FileSource):
    """CSV as of RFC 4180, or with tabs (.tsv); the first row names the columns."""

    column: str = "text"

    kind = "CSV files"

    def records(self, file: Path) -> Iterator[FileRecord]:
        """Yield the text of each row, in a list that is empty where the row is too short."""
        csv.field_size_limit(LONGEST_FIELD)
        with opened_text(file) as (stream, read_bytes):
            lines = (line.decode(errors="surrogateescape") for _, line in numbered_lines(stream))
            rows = csv.reader(lines, delimiter="\t" if ".tsv" in file.name.lower() else ",")
            try:
                columns = next(rows, [])
                if self.column not in columns:
                    raise _no_column(file, self.column, columns)
                place = columns.index(self.column)
                for row in filter(None, rows):
                    yield FileRecord(row[place : place + 1], rows.line_num, read_bytes())
            except csv.Error as error:
                raise DamagedFile(rows.line_num, error) from error

    def parse(self, raw: RawDocument) -> Parsed:
        """Return the paragraphs of the text."""
        text = raw.content[0] if raw.content else None
        if text is not None and not is_unicode(text):
            return _skipped(raw, INVALID_UTF8)
        return parsed_text(text, raw)


@dataclass(frozen=True)
class ParquetFiles(FileSource):
    """Parquet, the document in one of the columns."""

    column: str = "text"

    kind = "Parquet files"
    libraries = ("pyarrow",)

    def records(self, file: Path) -> Iterator[FileRecord | Skipped]:
        """Yield the undecoded text of each row."""
        require("pyarrow", by=self.name)
        import pyarrow
        from pyarrow import parquet

        row = 0
        try:
            size = file.stat().st_size
            with parquet.ParquetFile(file, pre_buffer=False) as table:
                _check_column(table.schema_arrow, self.column, file)
                for batch in table.iter_batches(
                    ROWS_PER_BATCH, columns=[self.column], use_threads=False
                ):
                    for content in _undecoded(batch.column(0)):
                        row += 1
                        if content is None:
                            yield Skipped(str(file), row, "the text is null")
                            continue
                        # A share of the size: the columns of a row are spread over the file.
                        yield FileRecord(
                            content, row, size * row // max(row, table.metadata.num_rows)
                        )
        except (pyarrow.ArrowException, OSError) as error:
            raise DamagedFile(row, error) from error

    def parse(self, raw: RawDocument) -> Parsed:
        """Return the paragraphs of the text."""
        try:
            return parsed_text(raw.content.decode(), raw)
        except UnicodeDecodeError:
            return _skipped(raw, INVALID_UTF8)


def _undecoded(column: Any) -> list[bytes | None]:
    """Return texts as bytes: one that is not UTF-8 must not stop the whole file."""
    import pyarrow

    if pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    texts: list[bytes | None] = column.cast(pyarrow.large_binary()).to_pylist()
    return texts


def parsed_text(text: object, raw: RawDocument) -> Parsed:
    """Return the paragraphs of the value of a text column."""
    if text is None:
        return _skipped(raw, "the text is null")
    if not isinstance(text, str):
        return _skipped(raw, "the text column holds no text")
    if not is_unicode(text):
        return _skipped(raw, "not valid Unicode")
    return Parsed(paragraphs_of(text), [])


def _json_object(line: bytes) -> dict[str, Any] | str:
    """Return the object of a line, or the reason why there is none."""
    try:
        # Decoded here, because the library detects bytes with zeros as UTF-16.
        record = json.loads(line.decode())
    except UnicodeDecodeError:
        return INVALID_UTF8
    except (ValueError, RecursionError):
        return "not valid JSON"
    return record if isinstance(record, dict) else "not a JSON object"


def _skipped(raw: RawDocument, reason: str) -> Parsed:
    return Parsed([], [Skipped(raw.file, raw.line, reason)])


def _check_column(schema: Any, column: str, file: Path) -> None:
    from pyarrow import types

    if column not in schema.names:
        raise _no_column(file, column, schema.names)
    kind = schema.field(column).type
    if types.is_dictionary(kind):
        kind = kind.value_type
    if not (types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)):
        raise CorpusError(
            f"{file}: column {column!r} holds {kind}, not text; name another one: column=NAME"
        )


def _no_column(file: Path, column: str, columns: list[str]) -> CorpusError:
    return CorpusError(
        f"{file}: has no column {column!r}, it has {', '.join(columns) or 'none'}; "
        "say which one is the text: column=NAME"
    )
