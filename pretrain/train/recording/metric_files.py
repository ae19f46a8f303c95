"""Files of metrics that grow by whole lines: NAME.jsonl, and the same numbers as NAME.csv.

A full disk does not stop training: what cannot be written is kept in memory and written with the
next line. The CSV file is a function of the JSON lines, and is made from them where it differs.
"""

import csv
import io
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from data_prep.files.atomic import append_whole
from data_prep.files.strict_json import JsonError, json_in
from pretrain.config.errors import ConfigError


class Lines:
    """A text file that grows by whole lines."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.waiting = ""  # lines that could not be written yet

    def append(self, lines: str) -> None:
        """Write lines, and those that could not be written before."""
        is_first = not self.waiting
        self.waiting += lines
        try:
            self.settle()
        except OSError as error:
            if is_first:
                warn_of_waiting(self.file, error)

    def settle(self) -> None:
        """Write the lines that are kept in memory.

        Raises:
            OSError: they still cannot be written.
        """
        append_whole(self.file, self.waiting)
        self.waiting = ""

    def truncate(self, size: int) -> None:
        """Keep the first bytes of the file, which needs no room, and nothing in memory."""
        self.waiting = ""
        if self.file.exists():
            os.truncate(self.file, size)


class MetricFile:
    """Records of steps as lines of JSON, and as a table for spreadsheets and pandas.

    The columns of the table are the numbers of the first record, see `flat_numbers`. The bytes of
    all collectives are one column: which of them a step needs is not known at the start.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._json = Lines(folder / f"{name}.jsonl")
        self._csv = Lines(folder / f"{name}.csv")
        self._columns: list[str] = []

    def append(self, record: dict[str, Any]) -> None:
        """Write a record to both files."""
        self._json.append(json.dumps(record) + "\n")
        if _row(record).keys() <= set(self._columns):
            self._csv.append(_table(self._columns, [record]))
        else:  # the first record, or lines of an older version stand before it
            written = self._json.file.read_bytes() if self._json.file.exists() else b""
            lines = written + self._json.waiting.encode()
            self._match_csv(json_in(line) for line in lines.splitlines())

    def settle(self) -> None:
        """Write what is kept in memory.

        Raises:
            OSError: it still cannot be written.
        """
        self._json.settle()
        self._csv.settle()

    def discard_after(self, step: int) -> None:
        """Remove the records after a step; on a full disk too.

        Raises:
            ConfigError: a line is damaged.
        """
        size, records = 0, []
        file = self._json.file
        content = file.read_bytes() if file.exists() else b""
        for number, line in enumerate(content.splitlines(keepends=True), 1):
            # The last line can be cut short: the process died while writing it.
            if not line.endswith(b"\n"):
                break
            record = _record(line, f"line {number} of {file}")
            if record["step"] > step:
                break
            size += len(line)
            records.append(record)
        self._json.truncate(size)
        self._match_csv(records)

    def _match_csv(self, records: Iterable[dict[str, Any]]) -> None:
        """Let the table hold these records, whatever it holds now."""
        records = list(records)
        self._columns = list(dict.fromkeys(name for record in records for name in _row(record)))
        text = _table(self._columns, records, header=True) if records else ""
        file, expected = self._csv.file, text.encode()
        if file.exists() and file.read_bytes().startswith(expected):
            self._csv.truncate(len(expected))
        else:
            self._csv.truncate(0)
            if text:
                self._csv.append(text)


def flat_numbers(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record without nesting: {"keep_rates/layer_01": ..., "time_shares/data": ...}."""
    numbers: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, list):
            parts = {f"layer_{layer:02d}": part for layer, part in enumerate(value, 1)}
        elif isinstance(value, dict):
            parts = value
        else:
            numbers[name] = value
            continue
        numbers |= {f"{name}/{part}": number for part, number in parts.items()}
    return numbers


def warn_of_waiting(file: Path, error: OSError) -> None:
    """Report a file that cannot be written now."""
    print(
        f"\nwarning: {file} cannot be written ({error.strerror or error}); what belongs there is "
        "kept in memory until it can",
        file=sys.stderr,
    )


def _row(record: dict[str, Any]) -> dict[str, Any]:
    by_collective = record.get("payload_bytes_per_step")
    if isinstance(by_collective, dict):
        record = {**record, "payload_bytes_per_step": sum(by_collective.values())}
    return flat_numbers(record)


def _table(columns: list[str], records: list[dict[str, Any]], *, header: bool = False) -> str:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(map(_row, records))
    return text.getvalue()


def _record(line: bytes, place: str) -> dict[str, Any]:
    try:
        found = json_in(line)
    except JsonError:
        found = None
    if not isinstance(found, dict) or type(found.get("step")) is not int:
        raise ConfigError(f"{place} is damaged: not metrics of a step; restore it from a copy")
    return found
