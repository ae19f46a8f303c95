"""Read rows with named columns from TSV, CSV, JSON Lines and Parquet.

TSV is that of GLUE: a tab ends a field and a line feed a row, quotes are ordinary characters. CSV
is that of a corpus, where a quoted field may contain commas and line breaks.
"""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from data_prep.files.quoting import first_line, plain, quoted
from data_prep.sources.streams import UTF16_MARKS
from data_prep.sources.tables import csv_rows
from finetune.tasks.task import TaskError
from pretrain.config.errors import nearest
from pretrain.reports.words import counted

MAX_NAMED_COLUMNS = 20  # in a message: without a header, the fields of the first row count as names
FORMATS = ".tsv, .csv, .jsonl or .parquet"


class FileRow(NamedTuple):
    """One row of a file."""

    number: int  # in the file, from 1, the header too
    values: dict[str, object]  # text, except in JSON and Parquet


def read_rows(
    file: Path, needed: Sequence[str], *, suffix: str | None = None, every_column: bool = False
) -> list[FileRow]:
    """Return the rows of a file in the format of its suffix; all have the needed columns.

    Args:
        file: of the rows.
        needed: columns; in .txt a line is the only one, and a tab separates two.
        suffix: instead of the file's own, such as ".csv".
        every_column: read the others of Parquet too, as of the other formats.

    Raises:
        TaskError: the file cannot be read, holds no rows, or has not the format of its suffix.
    """
    suffix = suffix or file.suffix.lower()
    if suffix in (".csv", ".tsv", ".txt"):
        if suffix == ".txt" and len(needed) == 1:  # a tab in a single text is text
            records = [[line] for line in lines_of(file)]
        else:
            records = _csv_records(file, needed) if suffix == ".csv" else tab_separated(file)
        has_header = suffix != ".txt" or (len(needed) > 1 and records[:1] == [list(needed)])
        header = [] if has_header else list(needed)
        rows = named_rows(file, records, needed, header=header)
    elif suffix == ".jsonl":
        rows = list(_json_rows(file, needed))
    elif suffix == ".parquet":
        found = _parquet_rows(file, needed, every_column=every_column)
        rows = [FileRow(*row) for row in enumerate(found, start=1)]
    else:
        raise TaskError(f"{file}: unknown format {suffix!r}; use {FORMATS}, or .conll for tags")
    if not rows:
        raise TaskError(f"{file} holds no rows; give a file with some")
    return rows


def named_rows(
    file: Path,
    records: Sequence[list[str]],
    needed: Sequence[str],
    *,
    header: Sequence[str] = (),
    broken: list[TaskError] | None = None,
) -> list[FileRow]:
    """Return records as rows with named fields; one without fields is a row of a single column.

    `header` names the columns, by default the first record; `broken` gets an error for each record
    of another length, which is left out.

    Raises:
        TaskError: the file is empty, a needed column is missing or exists twice, or a record has
            another length.
    """
    columns, rows = list(header or next(iter(records), [])), []
    if not any(columns):
        raise TaskError(f"{file} is empty; its first row must name the columns {', '.join(needed)}")
    check_columns(f"{file}, row 1", needed, columns)
    first = 0 if header else 1
    for number, fields in enumerate(records[first:], start=first + 1):
        fields = fields or [""] * (len(columns) == 1)
        if len(fields) == len(columns):
            rows.append(FileRow(number, dict(zip(columns, fields, strict=True))))
        elif fields:
            error = TaskError(
                f"{file}, row {number}: {counted(len(fields), 'field')} where there are "
                f"{len(columns)} columns; fix or remove the row"
            )
            if broken is None:
                raise error
            broken.append(error)
    return rows


def tab_separated(file: Path) -> list[list[str]]:
    """Return the fields of each line, without empty lines at the end of several columns.

    Raises:
        TaskError: the file cannot be read or is not UTF-8.
    """
    records = [line.split("\t") for line in lines_of(file)]
    while len(records) > 1 and len(records[0]) > 1 and records[-1] == [""]:
        records.pop()
    return records


def lines_of(file: Path) -> list[str]:
    """Return the lines of a file, without their ends.

    Raises:
        TaskError: it cannot be read or is not UTF-8.
    """
    # Not splitlines(): it also splits at Unicode separators, which occur inside sentences.
    lines = _text_of(file).split("\n")
    if not lines[-1]:  # the end of the last line begins no other
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def _text_of(file: Path) -> str:
    """Return the content of a file in UTF-8, or in UTF-16 with a byte-order mark."""
    try:
        content = file.read_bytes()
        return content.decode("utf-16" if content.startswith(UTF16_MARKS) else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise TaskError(f"{file} is not UTF-8 ({error}); convert it with iconv") from None
    except OSError as error:
        raise TaskError(f"{file} cannot be read: {error.strerror or error}") from None


def check_columns(where: str, needed: Sequence[str], found: Sequence[str]) -> None:
    """Check that each needed column exists once.

    Raises:
        TaskError: one does not; names the columns of the file and the nearest one.
    """
    for column in needed:
        if found.count(column) > 1:
            raise TaskError(f"{where}: two columns are called {column!r}; rename one")
        if column not in found:
            listed = ", ".join(plain(name) for name in found[:MAX_NAMED_COLUMNS])
            raise TaskError(
                f"{where}: no column {column!r}{nearest(column, found, {})}; it has "
                f"{listed or 'none'}"
            )


def _csv_records(file: Path, needed: Sequence[str]) -> list[list[str]]:
    records: list[list[str]] = []
    try:
        for _, fields in csv_rows(io.StringIO(_text_of(file), newline=""), needed):
            records.append(fields)
    except csv.Error as error:
        raise TaskError(
            f"{file}, row {len(records) + 1}: not CSV: {error}; quote fields with line breaks, "
            "commas or quotes, and double the quotes in them"
        ) from None
    return records


def _json_rows(file: Path, needed: Sequence[str]) -> Iterator[FileRow]:
    for number, line in enumerate(lines_of(file), start=1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            raise TaskError(
                f"{file}, row {number}: {quoted(line)} is not a JSON object; every line of JSON "
                "Lines is one"
            )
        check_columns(f"{file}, row {number}", needed, list(values))
        yield FileRow(number, values)


def _parquet_rows(
    file: Path, needed: Sequence[str], *, every_column: bool
) -> list[dict[str, object]]:
    import pyarrow
    from pyarrow import parquet

    try:
        with file.open("rb") as stream, parquet.ParquetFile(stream) as table:
            check_columns(str(file), needed, table.schema_arrow.names)
            columns = None if every_column else list(needed)
            rows: list[dict[str, Any]] = table.read(columns, use_threads=False).to_pylist()
        for row in rows:
            for name in [name for name, cell in row.items() if isinstance(cell, bytes)]:
                errors = "strict" if name in needed else "replace"  # others may be images
                row[name] = row[name].decode(errors=errors)
        return rows
    except UnicodeDecodeError:
        raise TaskError(f"{file} has a text that is not UTF-8; write the file again") from None
    except (pyarrow.ArrowException, OSError) as error:
        reason = plain(first_line(error).rstrip("."))
        raise TaskError(f"{file} cannot be read as Parquet: {reason}; write it again") from None
