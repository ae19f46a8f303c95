"""Files of metrics that grow by whole lines.

A full disk does not stop training: what cannot be written is kept in memory and written with the
next line.
"""

import json
import os
from pathlib import Path
from typing import Any

from data_prep.files.atomic import append_whole
from data_prep.files.progress_bar import warn
from pretrain.config.errors import ConfigError


class MetricFile:
    """Records of steps as lines of JSON."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._waiting = ""  # lines that could not be written yet

    def append(self, record: dict[str, Any]) -> None:
        """Write a record, and those that could not be written before."""
        is_first = not self._waiting
        self._waiting += json.dumps(record) + "\n"
        try:
            self.settle()
        except OSError as error:
            if is_first:
                warn_of_full(self.file, error, "its lines are kept in memory until there is room")

    def settle(self) -> None:
        """Write what is kept in memory.

        Raises:
            OSError: it still cannot be written.
        """
        append_whole(self.file, self._waiting)
        self._waiting = ""

    def discard_after(self, step: int) -> None:
        """Remove the records after a step, on a full disk too.

        Raises:
            ConfigError: a line is damaged.
        """
        self._waiting, size = "", 0
        content = self.file.read_bytes() if self.file.exists() else b""
        for number, line in enumerate(content.splitlines(keepends=True), 1):
            # The last line can be cut short: the process died while writing it.
            if not line.endswith(b"\n"):
                break
            try:
                found = int(json.loads(line)["step"])
            except (ValueError, KeyError, TypeError):
                raise ConfigError(
                    f"line {number} of {self.file} is damaged: not metrics of a step; restore it "
                    "from a copy"
                ) from None
            if found > step:
                break
            size += len(line)
        if content:
            os.truncate(self.file, size)


def warn_of_full(file: Path, error: OSError, then: str) -> None:
    """Report a file that cannot be written now, and what that means."""
    reason = error.strerror or error
    warn(f"{file} cannot be written ({reason}); {then}")
