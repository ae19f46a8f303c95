"""Read rows with named columns from TSV, CSV, JSON Lines and Parquet.

TSV is that of GLUE: a tab ends a field and a line feed a row, quotes are ordinary characters. CSV
is that of RFC 4180, where a quoted field may contain commas and line breaks.
"""

import csv
import functools
import io
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from data_prep.files.errors import raise_it
from finetune.tasks.parquet import parquet_rows
from finetune.tasks.task import TaskError
from pretrain.config.errors import nearest
from pretrain.reports.words import counted

MAX_NAMED_COLUMNS = 20  # in a message: without a header, the fields of the first row count as names
FORMATS = ".tsv, .csv, .jsonl or .parquet"


class FileRow(NamedTuple):
    """One row of a file."""

    line: int  # where it begins in the file, from 1
    values: dict[str, object]  # text, except in JSON


def read_rows(file: Path, needed: Sequence[str], *, suffix: str | None = None) -> Iterator[FileRow]:
    """Yield the rows of a file in the format of its suffix; all have the needed columns.

    Args:
        file: of the rows.
        needed: columns.
        suffix: instead of the file's own, such as ".csv".

    Raises:
        TaskError: the file cannot be read, or does not have the format of its suffix.
    """
    suffix = file.suffix.lower() if suffix is None else suffix
    if suffix in (".csv", ".tsv"):
        text = text_of(file)
        records = tab_separated(text) if suffix == ".tsv" else _comma_separated(file, text)
        yield from named_rows(file, records, needed)
    elif suffix == ".jsonl":
        yield from _json_rows(file, needed)
    elif suffix == ".parquet":
        check = functools.partial(check_columns, file, None, needed)
        for number, values in enumerate(parquet_rows(file, needed, check), start=1):
            yield FileRow(number, values)
    else:
        raise TaskError(
            f"{file}: unknown format {suffix!r}; use {FORMATS}, according to its content"
        )


def named_rows(
    file: Path,
    records: Iterator[tuple[int, list[str]]],
    needed: Sequence[str],
    *,
    header: Sequence[str] = (),
    refuse: Callable[[TaskError], None] = raise_it,
) -> Iterator[FileRow]:
    """Yield records as rows with named fields.

    Args:
        file: for messages.
        records: line and fields of each.
        needed: columns that must exist.
        header: names of the columns; by default the first record.
        refuse: called with an error for each record of another length, which is not yielded.

    Raises:
        TaskError: the file is empty, a needed column is missing or exists twice, or `refuse`
            raises it.
    """
    columns = list(header)
    if not columns:
        line, columns = next(records, (1, []))
        if not any(columns):
            raise TaskError(
                f"{file} is empty; its first row must name the columns {', '.join(needed)}"
            )
        check_columns(file, line, needed, columns)
    for line, fields in records:
        if len(fields) == len(columns):
            yield FileRow(line, dict(zip(columns, fields, strict=True)))
        else:
            refuse(
                TaskError(
                    f"{file}, row {line}: {counted(len(fields), 'field')} where there are "
                    f"{len(columns)} columns; fix or remove the row"
                )
            )


def tab_separated(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield line and fields of each row of TSV; empty lines at its end are ignored.

    Of one column they are rows, as they are elsewhere in it.
    """
    has_columns = "\t" in text.partition("\n")[0]
    for number, (line,) in whole_lines(text.rstrip("\r\n") if has_columns else text):
        yield number, line.split("\t")


def whole_lines(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield each line as the only field of a row."""
    # Not splitlines(): it also splits at Unicode separators, which occur inside sentences.
    lines = text.split("\n")
    if not lines[-1]:  # the end of the last line begins no other
        lines.pop()
    for number, line in enumerate(lines, start=1):
        yield number, [line.removesuffix("\r")]


def text_of(file: Path) -> str:
    """Return the content of a UTF-8 file without its byte-order mark.

    Raises:
        TaskError: it cannot be read or is not UTF-8.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        raise TaskError(f"{file} cannot be read: {error.strerror or error}") from None
    try:
        return content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise TaskError(
            f"{file}, row {line}: byte {error.start} (0x{content[error.start]:02x}) is not UTF-8; "
            f"convert the file: iconv -f ENCODING -t UTF-8 {file.name}"
        ) from None


def check_columns(
    file: Path, line: int | None, needed: Sequence[str], found: Sequence[str]
) -> None:
    """Check that each needed column exists once.

    Args:
        file: for messages.
        line: that names the columns; None: they have a place of their own.
        needed: columns that must exist.
        found: columns of the file.

    Raises:
        TaskError: one does not; names the columns of the file and the nearest one.
    """
    where = str(file) if line is None else f"{file}, row {line}"
    for column in needed:
        if found.count(column) == 1:
            continue
        if column in found:
            raise TaskError(f"{where}: two columns are called {column!r}; rename one")
        names = [shortened(name) for name in found]
        listed = ", ".join(names[:MAX_NAMED_COLUMNS])
        raise TaskError(
            f"{where}: no column {column!r}{nearest(column, names)}; it has {listed or 'none'} "
            "(.csv has commas, .tsv tabs); rename a column, or choose another one"
        )


def shortened(text: str) -> str:
    """Return text shortened to fit into a message of one line."""
    start = text if len(text) <= 40 else f"{text[:37]}..."
    return "".join(letter if letter.isprintable() else "?" for letter in start)


def _comma_separated(file: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(sys.maxsize)  # the module's default is 131,072 characters
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    begins, num_columns = 1, 0
    try:
        for fields in rows:
            num_columns = num_columns or len(fields)
            if fields:
                yield begins, fields
            elif num_columns == 1:
                yield begins, [""]
            begins = rows.line_num + 1
    except csv.Error as error:
        raise TaskError(
            f"{file}, row {begins}: not CSV: {error}; quote fields with line breaks, commas or "
            "quotes, and double the quotes in them"
        ) from None


def _json_rows(file: Path, needed: Sequence[str]) -> Iterator[FileRow]:
    for number, line in enumerate(text_of(file).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            raise TaskError(
                f"{file}, row {number}: {shortened(line.strip())} is not a JSON object; "
                "every line of JSON Lines is one"
            )
        check_columns(file, number, needed, list(values))
        yield FileRow(number, values)
