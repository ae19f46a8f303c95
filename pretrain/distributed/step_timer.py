"""Time of the phases of training steps: data, forward, backward, optimizer.

Every moment belongs to at most one phase, so that the seconds add up; the rest is "other". Nothing
synchronizes with the device: on a CPU a clock is read between phases, on CUDA an event is recorded
in the stream, and read when it has passed.
"""

import contextlib
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Literal, TypeVar, get_args

import torch
from torch.profiler import record_function

Phase = Literal["data", "forward", "backward", "optimizer"]
PHASES: tuple[Phase, ...] = get_args(Phase)  # in the order of a step

Item = TypeVar("Item")


class Phases:
    """Adds up the seconds of each phase.

    The exchange of gradients belongs to the phase in which it is awaited. On CUDA the phases are
    those of the compute stream, and waiting for data counts only while the device is idle.
    """

    def __init__(self, device: Literal["cpu", "cuda"]) -> None:
        self._clock = StreamClock() if device == "cuda" else HostClock()

    @contextlib.contextmanager
    def phase(self, name: Phase) -> Iterator[None]:
        """Count the time of the block as `name`; a profiler shows it as phase/`name`."""
        self._clock.turn_to(name)
        try:
            with record_function(f"phase/{name}"):
                yield
        finally:
            self._clock.turn_to(None)

    def waiting_for(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield the items, and count the time to get them as "data"."""
        iterator = iter(items)
        while True:
            with self.phase("data"):
                try:
                    item = next(iterator)
                except StopIteration:
                    return
            yield item

    def take_seconds(self) -> dict[str, float]:
        """Return the seconds of each phase since the last call; the device must have finished."""
        return self._clock.take_seconds()


class HostClock:
    """Reads the clock of the host, whose operations are synchronous."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._name: Phase | None = None
        self._since = 0.0

    def turn_to(self, name: Phase | None) -> None:
        """End the current phase now, or begin one."""
        now = time.perf_counter()
        if self._name is not None:
            self._seconds[self._name] = self._seconds.get(self._name, 0.0) + now - self._since
        self._name, self._since = name, now

    def take_seconds(self) -> dict[str, float]:
        """Return the seconds of each phase since the last call."""
        seconds, self._seconds = self._seconds, {}
        return seconds


class StreamClock(HostClock):
    """Records timed events in the CUDA stream, and reads those that the device has passed.

    At the end of a phase it collects the passed events without waiting and reuses them:
    their number is bounded by the work in the queue of the device.
    """

    def __init__(self) -> None:
        super().__init__()
        self._marks: deque[tuple[Phase | None, torch.cuda.Event]] = deque()  # beginning of a phase
        self._unused: list[torch.cuda.Event] = []
        self._stream = torch.cuda.current_stream()

    def turn_to(self, name: Phase | None) -> None:
        """End the current phase at this place of the stream, or begin one."""
        event = (
            self._unused.pop() if self._unused else torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        )
        event.record(self._stream)
        self._marks.append((name, event))
        if name is None:
            self._collect()

    def take_seconds(self) -> dict[str, float]:
        """Return the seconds of each phase since the last call; the device must have finished."""
        self._collect()
        return super().take_seconds()

    def _collect(self) -> None:
        """Add the phases whose end the device has passed."""
        while len(self._marks) > 1 and self._marks[1][1].query():  # type: ignore[no-untyped-call]
            name, begin = self._marks.popleft()
            if name is not None:
                seconds = begin.elapsed_time(self._marks[0][1]) / 1000
                self._seconds[name] = self._seconds.get(name, 0.0) + seconds
            self._unused.append(begin)
