"""The progress of all commands on stderr: a bar in a terminal, lines in a log file."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tqdm import tqdm

LINE_SECONDS = 30.0  # between lines in a log file


class ProgressLines:
    """Progress for a log file: a line with date and time every half minute, and when asked for."""

    def __init__(self, describe: Callable[[], str], n: float = 0) -> None:
        """Begin; `describe` returns the line, without the time, and `n` is done already."""
        self._describe, self.n = describe, n
        self._first, self._began = n, time.monotonic()
        self._line_at, self._printed_n = self._began, -1.0

    def update(self, n: float = 1) -> None:
        """Add what was done; print a line if the last one is half a minute old."""
        self.n += n
        self.print_if_due()

    def print_if_due(self) -> None:
        """Print a line if the last one is half a minute old."""
        if time.monotonic() - self._line_at >= LINE_SECONDS:
            self.print()

    def print(self) -> None:
        """Print a line now, unless nothing was done since the last one."""
        if self.n == self._printed_n:
            return
        self._line_at, self._printed_n = time.monotonic(), self.n
        with suppress(OSError):  # a full disk: the log is less than the work
            line = f"{time.strftime('%F %T')} {self._describe()}\n"
            sys.stderr.write(line)
            sys.stderr.flush()

    @property
    def seconds(self) -> float:
        """Return the seconds of this process."""
        return time.monotonic() - self._began

    def time_left(self, total: float | None) -> str:
        """Return ", 1:23:45 left", or nothing where that is not known."""
        done = self.n - self._first
        if total is None or self.n >= total or not done:
            return ""
        return f", {tqdm.format_interval((total - self.n) * self.seconds / done)} left"


def warn(line: str) -> None:
    """Print a warning; it never ends the work, as where the log lies on the disk that is full."""
    with suppress(OSError):
        print(f"\nwarning: {line}", file=sys.stderr)


@contextmanager
def progress_bar(
    stage: str, total: int | None, unit: str, *, shown: bool = True, done: int = 0
) -> Iterator[Any]:
    """Show the progress of a stage; `update` adds to `n`, the number of units that are done.

    `unit` is "B" for bytes, or a noun in the singular. Units that are `done` come before the
    clock starts.
    """
    suffix = unit if unit == "B" else f" {unit}s"
    if not shown or sys.stderr.isatty():
        with tqdm(
            desc=stage,
            total=total,
            initial=done,
            unit=suffix,
            unit_scale=True,
            disable=not shown,
            mininterval=0.2,
        ) as bar:
            yield bar
        return

    def describe() -> str:
        return tqdm.format_meter(
            lines.n,
            total or 0,
            lines.seconds,
            ncols=0,
            prefix=stage,
            unit=suffix,
            unit_scale=True,
            initial=done,
        )

    lines = ProgressLines(describe, done)
    try:
        yield lines
    finally:
        lines.print()
