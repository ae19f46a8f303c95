"""Writes metrics as lines of JSON and to TensorBoard; a full disk does not stop training.

What cannot be written is kept in memory and written with the next line.
"""

import json
import sys
import threading
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from data_prep.files.atomic import append_whole


class Lines:
    """A file of JSON lines that grows by whole lines."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._waiting: list[str] = []

    def append(self, record: dict[str, Any]) -> None:
        """Write a line, and those that could not be written before."""
        self._waiting.append(json.dumps(record) + "\n")
        try:
            self.settle()
        except OSError as error:
            if len(self._waiting) == 1:
                _warn(self._file, error)

    def settle(self) -> None:
        """Write the lines that are kept in memory.

        Raises:
            OSError: they still cannot be written.
        """
        append_whole(self._file, "".join(self._waiting))
        self._waiting.clear()

    def forget(self) -> None:
        """Discard the lines that are kept in memory: the run rewinds."""
        self._waiting.clear()


class Curves:
    """The TensorBoard files of a run."""

    def __init__(self, folder: Path, step: int) -> None:
        """Begin a file whose points replace those after `step` in older ones."""
        self._folder, self._first_step = folder, step + 1
        self._waiting: list[tuple[str, dict[str, Any]]] = []
        self._writer: SummaryWriter | None = None
        _silence_writers()

    def show(self, prefix: str, values: dict[str, Any]) -> None:
        """Add the numbers in a line of metrics, and those that could not be written before."""
        self._waiting.append((prefix, values))
        try:
            if self._writer is None:
                self._writer = SummaryWriter(str(self._folder), purge_step=self._first_step)
            for waiting in self._waiting:
                _add(self._writer, *waiting)
            self._writer.flush()
        except OSError as error:
            if self._writer is not None:
                _warn(self._folder / "events.*", error)
            self._writer = None  # what it had buffered is lost
            return
        self._waiting.clear()
        self._first_step = values["step"] + 1

    def close(self) -> None:
        """Close the file; everything in it has been flushed."""
        if self._writer is not None:
            self._writer.close()


def _add(writer: SummaryWriter, prefix: str, values: dict[str, Any]) -> None:
    for name, value in values.items():
        if isinstance(value, list):
            for index, part in enumerate(value):
                writer.add_scalar(f"{name}/layer_{index + 1:02d}", part, values["step"])
        elif isinstance(value, dict):
            for key, part in value.items():
                writer.add_scalar(f"{name}/{key}", part, values["step"])
        elif value is not None and name != "step":
            writer.add_scalar(f"{prefix}/{name}", value, values["step"])


def _warn(file: Path, error: OSError) -> None:
    print(
        f"\nwarning: {file} cannot be written ({error.strerror or error}); what belongs there is "
        "kept in memory until it can",
        file=sys.stderr,
    )


def _silence_writers() -> None:
    """Do not print errors of TensorBoard's thread: they are raised again in ours."""
    report = threading.excepthook

    def quietly(details: "threading.ExceptHookArgs") -> None:
        if not issubclass(details.exc_type, OSError):
            report(details)

    threading.excepthook = quietly
