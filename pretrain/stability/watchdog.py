"""A thread per rank that reports steps that take too long, with the stacks of all threads.

Each rank writes its stacks to RUN/stuck/. A rank that cannot, because it is stopped or waits for a
disk, is named by the first rank that could, with the state of its process. The thread also ends its
rank when another rank on this machine is gone: a collective of NCCL would wait for ten minutes.

The cost per step is two clock readings and an append; the thread polls once a second.
"""

import contextlib
import faulthandler
import os
import signal
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, NoReturn

from pretrain.config.settings import WatchdogSettings
from pretrain.distributed.processes import RankProcess
from pretrain.distributed.ranks import Ranks
from pretrain.stability.idleness import Idleness

# Of the automatic limit: a large step takes seconds, a stall of a file server a minute.
LEAST_SECONDS, TIMES_MEDIAN = 120.0, 20.0
# Kernels are compiled and tuned in the first steps, for each depth of layer drop.
FIRST_STEPS, START = 5, "the start of training"
# For phases with little history: the first step, evaluations, checkpoints.
LEAST_PHASE_SECONDS, TIMES_LONGEST_PHASE, TIMES_LIMIT = 1800.0, 5.0, 10.0
# For the other first steps: what is compiled in them takes no longer than what the first one needs,
# but that one may have found it in a cache.
LEAST_START_SECONDS = 600.0
# After the death of a rank, collectives have this long to fail with a reason of their own.
GONE_SECONDS = 5.0
# By then every rank that can has written its stacks.
SUMMARY_SECONDS = 5.0
MEDIAN_STEPS = 101
POLL_SECONDS, ARM_SECONDS = 1.0, 10.0


class Watched(NamedTuple):
    """What the rank is doing: a step, or a phase at a step."""

    step: int
    phase: str | None  # None: an ordinary step
    since: float  # time.monotonic()

    def __str__(self) -> str:
        return f"{self.phase} at step {self.step}" if self.phase else f"step {self.step}"


@dataclass
class Stuck:
    """A reported step or phase that has not ended yet."""

    watched: Watched
    summary_at: float
    summarized: bool = False


class Limits:
    """How long a step or a phase may take, from the settings and the durations so far."""

    def __init__(self, settings: WatchdogSettings) -> None:
        self._given = settings.stuck_after_seconds
        self._steps: deque[float] = deque(maxlen=MEDIAN_STEPS)
        self._longest: dict[str, float] = {}

    def add(self, watched: Watched, seconds: float) -> None:
        """Add a duration."""
        if watched.phase is None:
            self._steps.append(seconds)
        else:
            self._longest[watched.phase] = max(seconds, self._longest.get(watched.phase, 0.0))

    def of_idle_start(self) -> float:
        """Return the seconds after which a first step is stuck in which no rank computes."""
        return LEAST_SECONDS if self._given is None else self._given

    def of(self, watched: Watched) -> float:
        """Return the seconds after which this is stuck."""
        if watched.phase is not None:
            if self._given is not None:
                return TIMES_LIMIT * self._given
            longest = self._longest.get(watched.phase, 0.0)
            known = watched.phase == START and START in self._longest
            least = LEAST_START_SECONDS if known else LEAST_PHASE_SECONDS
            return max(least, TIMES_LONGEST_PHASE * longest)
        if self._given is not None:
            return self._given
        median = statistics.median(list(self._steps) or [0.0])
        return max(LEAST_SECONDS, TIMES_MEDIAN * median)


class Watchdog:
    """Watches the steps of this rank inside a `with` statement."""

    def __init__(
        self, settings: WatchdogSettings, ranks: Ranks, folder: Path, peers: Sequence[RankProcess]
    ) -> None:
        """Prepare; the thread starts in `__enter__`.

        Args:
            settings: limits.
            ranks: this rank and their number.
            folder: of the run; stacks are written to its folder `stuck`.
            peers: the processes of all ranks, by rank.
        """
        self.limits = Limits(settings)
        self._end_after, self._folder = settings.end_after_seconds, folder / "stuck"
        self._ranks, self._peers, self._here = ranks, peers, peers[ranks.rank]
        self._neighbours = [
            peer
            for peer in peers
            if peer.machine == self._here.machine and peer.pid != self._here.pid
        ]
        # A rank may wait for one that compiles: all of them count, if all can be seen.
        is_one_machine = len(self._neighbours) + 1 == len(peers)
        self._idleness = Idleness([peer.pid for peer in peers] if is_one_machine else [])
        self._watched: Watched | None = None
        self._steps_seen = 0
        self._stuck: Stuck | None = None
        self._gone_since: float | None = None
        self._armed_at, self._armed_for = -ARM_SECONDS, 0.0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> "Watchdog":
        """Start the thread."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the thread."""
        del kind, error, trace
        self._closed.set()
        self._thread.join()

    def begin_step(self, step: int) -> None:
        """Begin a step, which ends the one before."""
        phase = START if self._steps_seen < FIRST_STEPS else None
        self._steps_seen += 1
        self._begin(Watched(step, phase, time.monotonic()))

    @contextlib.contextmanager
    def phase(self, name: str, step: int) -> Iterator[None]:
        """Watch a phase outside of the steps, such as an evaluation, with a limit of its own."""
        self._begin(Watched(step, name, time.monotonic()))
        yield
        self._begin(None)

    def _begin(self, watched: Watched | None) -> None:
        before, self._watched = self._watched, watched
        if before is not None:
            self.limits.add(before, time.monotonic() - before.since)

    def _watch(self) -> None:
        while not self._closed.wait(POLL_SECONDS):
            now, watched = time.monotonic(), self._watched
            self._check_peers(now)
            if self._stuck is not None and watched is not self._stuck.watched:
                seconds = now - self._stuck.watched.since
                self._say(f"{self._stuck.watched} continued after {seconds:.0f} s")
                self._stuck = None
            if watched is not None:
                self._check(watched, now)
        faulthandler.cancel_dump_traceback_later()

    def _check(self, watched: Watched, now: float) -> None:
        seconds, limit, end_after = now - watched.since, self.limits.of(watched), self._end_after
        self._arm(max(limit, end_after or 0.0), exits=end_after is not None, now=now)
        waits = [(seconds, limit)]
        if watched.phase == START:
            idle = min(self._idleness.seconds(now), seconds)
            waits.append((idle, self.limits.of_idle_start()))
        exceeded = [most for taken, most in waits if taken > most]
        if self._stuck is None and exceeded:
            self._report(watched, seconds)
            # The other ranks began this step a little earlier or later, with similar limits.
            later = max(SUMMARY_SECONDS, min(exceeded) / 5)
            self._stuck = Stuck(watched, summary_at=now + later)
        elif self._stuck is not None:
            self._summarize(self._stuck, now)
        if end_after is not None and any(taken > max(most, end_after) for taken, most in waits):
            self._kill_ranks_without_stacks(watched.since)
            self._end(
                f"{watched} has taken {seconds:.0f} s: ending the job "
                f"(watchdog.end_after_seconds={end_after:g})"
            )

    def _arm(self, seconds: float, *, exits: bool, now: float) -> None:
        """Let faulthandler write the stacks if this thread hangs too.

        C code that hangs with the interpreter's lock, such as HDF5 on a dead file server, stops
        this thread; the thread of faulthandler does not need the lock.
        """
        if now > self._armed_at + ARM_SECONDS or seconds < self._armed_for:
            faulthandler.dump_traceback_later(seconds + 2 * ARM_SECONDS, file=2, exit=exits)
            self._armed_at, self._armed_for = now, seconds

    def _report(self, watched: Watched, seconds: float) -> None:
        file = self._file(watched.step, self._ranks.rank)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("w") as stacks:
                stacks.write(f"{watched}, after {seconds:.0f} s; newest call first\n\n")
                stacks.flush()
                faulthandler.dump_traceback(stacks, all_threads=True)
            where = f"stacks in {file}"
        except OSError as error:
            where = f"stacks follow, because {file} cannot be written: {error.strerror}"
            faulthandler.dump_traceback(2, all_threads=True)
        self._say(f"{watched} has taken {seconds:.0f} s so far; {where}")

    def _summarize(self, stuck: Stuck, now: float) -> None:
        """Report the ranks without stacks, on the first rank that has written its own."""
        if stuck.summarized or now < stuck.summary_at:
            return
        stuck.summarized = True
        silent = [
            peer for peer in self._peers if not self._has_written(peer.rank, stuck.watched.since)
        ]
        first = next((peer for peer in self._peers if peer not in silent), self._here)
        if first == self._here:
            for peer in silent:
                state = peer.condition(self._here.machine)
                self._say(f"{stuck.watched}: no stacks of rank {peer.rank}, which {state}")

    def _has_written(self, rank: int, since: float) -> bool:
        began = time.time() - (time.monotonic() - since)
        # A waiting rank may be one step ahead of the rank that it waits for.
        files = self._folder.glob(f"step_*_rank_{rank}.txt")
        return any(file.stat().st_mtime >= began for file in files)

    def _kill_ranks_without_stacks(self, since: float) -> None:
        """Kill the ranks of this machine that wrote no stacks: a stopped one cannot end itself."""
        for peer in self._neighbours:
            if not peer.is_gone() and not self._has_written(peer.rank, since):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(peer.pid, signal.SIGKILL)

    def _check_peers(self, now: float) -> None:
        """End this rank if another one is gone and the main thread does not notice."""
        gone = next((peer for peer in self._neighbours if peer.is_gone()), None)
        if gone is None:
            self._gone_since = None
        elif self._gone_since is None:
            self._gone_since = now
        elif now > self._gone_since + GONE_SECONDS:
            state = gone.condition(self._here.machine)
            self._end(f"lost rank {gone.rank}, which {state}")

    def _file(self, step: int, rank: int) -> Path:
        return self._folder / f"step_{step:08d}_rank_{rank}.txt"

    def _say(self, text: str) -> None:
        # One write: other ranks and a progress bar write to the same stream.
        sys.stderr.write(f"\nrank {self._ranks.rank}: {text}\n")
        sys.stderr.flush()

    def _end(self, text: str) -> NoReturn:
        try:
            self._say(text)
        finally:
            os._exit(1)
