"""Tables of which one column is text: JSON Lines and Parquet."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_prep.sources.lines import lines_of
from data_prep.sources.source import (
    CorpusError,
    DamagedFile,
    FileSource,
    Parsed,
    RawDocument,
    Record,
    Skipped,
    paragraphs_of,
)

LONGEST_RECORD = 1 << 26  # bytes of one line of JSON
ROWS_PER_BATCH = 256


@dataclass(frozen=True)
class JsonLines(FileSource):
    """One JSON object a line, the document in one of its fields."""

    column: str = "text"

    kind = "JSON Lines files"

    def records(self, file: Path) -> Iterator[Record | Skipped]:
        """Yield the undecoded lines."""
        is_first = True
        for line in lines_of(file, longest=LONGEST_RECORD, longer="leave out"):
            if line.length == "too long":
                yield Skipped(str(file), line.number, "record over 64 MB")
                continue
            if not line.content.strip():
                continue
            if is_first:
                self._check_first(line.content, file)
                is_first = False
            yield Record(line.content, line.number, line.read_bytes)

    def parse(self, raw: RawDocument) -> Parsed:
        """Return the paragraphs of the text column."""
        try:
            record = json.loads(raw.content)
        except UnicodeDecodeError:
            return _skipped(raw, "not valid UTF-8")
        except (ValueError, RecursionError):
            return _skipped(raw, "not valid JSON")
        if not isinstance(record, dict):
            return _skipped(raw, "not a JSON object")
        if self.column not in record:
            return _skipped(raw, "the text column is missing")
        return parsed_text(record[self.column], raw)

    def _check_first(self, line: bytes, file: Path) -> None:
        """Refuse a file of another kind or another column before hours are spent on it."""
        if line.lstrip().startswith(b"["):
            raise CorpusError(
                f"{file}: one JSON array, not JSON Lines; convert it: jq -c '.[]' {file}"
            )
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            return  # counted like any other damaged line
        if isinstance(record, dict) and self.column not in record:
            raise _no_column(file, self.column, list(record))


@dataclass(frozen=True)
class ParquetFiles(FileSource):
    """Parquet, the document in one of the columns."""

    column: str = "text"

    kind = "Parquet files"

    def records(self, file: Path) -> Iterator[Record | Skipped]:
        """Yield the text of each row."""
        import pyarrow
        from pyarrow import parquet

        row = 0
        size = file.stat().st_size
        try:
            with parquet.ParquetFile(file, pre_buffer=False) as table:
                _check_column(table.schema_arrow, self.column, file)
                for batch in table.iter_batches(
                    ROWS_PER_BATCH, columns=[self.column], use_threads=False
                ):
                    for text in batch.column(0).to_pylist():
                        row += 1
                        yield Record(text, row, size * row // table.metadata.num_rows)
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise DamagedFile(row, error) from error

    def parse(self, raw: RawDocument) -> Parsed:
        """Return the paragraphs of the text."""
        return parsed_text(raw.content, raw)


def parsed_text(text: object, raw: RawDocument) -> Parsed:
    """Return the paragraphs of the value of a text column."""
    if text is None:
        return _skipped(raw, "the text is null")
    if not isinstance(text, str):
        return _skipped(raw, "the text column holds no text")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # half of a pair, such as "\\ud800" in JSON
        return _skipped(raw, "not valid Unicode")
    return Parsed(paragraphs_of(text), [])


def _skipped(raw: RawDocument, reason: str) -> Parsed:
    return Parsed([], [Skipped(raw.file, raw.line, reason)])


def _check_column(schema: Any, column: str, file: Path) -> None:
    from pyarrow import types

    if column not in schema.names:
        raise _no_column(file, column, schema.names)
    kind = schema.field(column).type
    if types.is_dictionary(kind):
        kind = kind.value_type
    if not (types.is_string(kind) or types.is_large_string(kind)):
        raise CorpusError(
            f"{file}: column {column!r} holds {kind}, not text; name another one: column=NAME"
        )


def _no_column(file: Path, column: str, columns: list[str]) -> CorpusError:
    return CorpusError(
        f"{file}: has no column {column!r}, it has {', '.join(columns) or 'none'}; "
        "say which one is the text: column=NAME"
    )
