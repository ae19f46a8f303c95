"""Seconds of a clock, and those in which other work kept the processors from this thread."""

import time
from pathlib import Path

# Nanoseconds on a processor, nanoseconds ready to run but not running, number of slices: Linux,
# Documentation/scheduler/sched-stats.rst.
SCHEDULER_STATISTICS = Path("/proc/thread-self/schedstat")


class Stopwatch:
    """Starts when it is made."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Start again from 0."""
        self._since = time.perf_counter()
        self._waited_before = waited_seconds()

    def seconds(self) -> float:
        """Return the seconds since the start."""
        return time.perf_counter() - self._since

    def waited(self) -> float | None:
        """Return the seconds in which this thread waited for a processor; None: not recorded."""
        now = waited_seconds()
        return None if now is None or self._waited_before is None else now - self._waited_before


def waited_seconds(statistics: Path = SCHEDULER_STATISTICS) -> float | None:
    """Return how long this thread has waited for a processor; None: the system does not record it.

    Above a few percent of the time, more threads want to run than there are processors.
    """
    try:
        return int(statistics.read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return None
