"""Runs child processes, and passes on to them what asks this process to stop."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, Protocol

import psutil

from data_prep.files.program import own_packages_first
from pretrain.distributed.processes import STARTER
from pretrain.distributed.signals import ECHO_SECONDS, signals_to_stop

# "[DATE] [ERROR] [launch.py:325:sigkill_handler] [...] exits with return code = 1"
LINE_OF_LAUNCHER = re.compile(r"\[[^]]*\] \[[A-Z]+\] \[(launch|runner)\.py:")

POLL_SECONDS = 0.1  # between looks at the children
REPEAT_SECONDS = 1.0  # between requests to ranks


class Ended(NamedTuple):
    """The end of a child process."""

    status: int  # as a shell reports it: 128 + the number of the signal that killed it
    stopped: bool  # whether a signal asked this process to stop


def trainer_words(*words: str) -> list[str]:
    """Return the command line of `python -m pretrain WORDS` with this interpreter."""
    return [sys.executable, "-m", "pretrain", *words]


class Job(Protocol):
    """What works for this process: a `Child`, or a worker of a sweep."""

    def start(self) -> None:
        """Start it."""

    def stop(self, number: int) -> None:
        """Pass on a signal that asks this process to stop."""

    def status(self) -> int | None:
        """Return its status as a shell reports it; None: it has not ended."""


class Child:
    """A program in a process group of its own.

    In the group of this process, Ctrl-C would reach the deepspeed launcher, which kills its ranks
    after 30 s, saved or not.
    """

    def __init__(
        self,
        words: Sequence[str],
        *,
        variables: Mapping[str, str] | None = None,
        has_ranks: bool = False,
        output: Path | None = None,
    ) -> None:
        """Prepare it.

        Args:
            words: the command line.
            variables: the environment; default: that of this process.
            has_ranks: whether it is the deepspeed launcher of this machine, below which the ranks
                are asked to stop, and not the launcher itself.
            output: a file to which stdout and stderr are appended; default: those of this process.
        """
        self.words, self.output = words, output
        self._variables, self._has_ranks = variables, has_ranks
        self._asked_at = self._repeated_at = 0.0  # on the monotonic clock; 0: not asked to stop
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        stream = None if self.output is None else self.output.open("ab")
        variables = own_packages_first(os.environ if self._variables is None else self._variables)
        self._process = subprocess.Popen(
            self.words,
            env=variables | {STARTER: str(os.getpid())},
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            process_group=0,
            preexec_fn=_leave_signals_to_ranks if self._has_ranks else None,
        )
        if stream is not None:
            stream.close()

    def stop(self, number: int) -> None:
        """Ask it to stop; a second request, `ECHO_SECONDS` later, ends ranks at once."""
        assert self._process is not None
        if not self._has_ranks:
            self._process.send_signal(number)
        elif self._asked_at and time.monotonic() - self._asked_at > ECHO_SECONDS:
            os.killpg(self._process.pid, signal.SIGKILL)
        else:
            self._asked_at = self._asked_at or time.monotonic()
            self._ask_ranks()

    def _ask_ranks(self) -> None:
        """Ask ranks again, which may not have been started at the first request."""
        if self._asked_at and time.monotonic() - self._repeated_at > REPEAT_SECONDS:
            assert self._process is not None
            with contextlib.suppress(psutil.Error):  # one of them has ended
                # Not what ranks have started: the compiler of torch would die, and its rank wait.
                for launcher in psutil.Process(self._process.pid).children():
                    for rank in launcher.children():
                        rank.send_signal(signal.SIGUSR1)
            self._repeated_at = time.monotonic()

    def status(self) -> int | None:
        """Return its status as a shell reports it; None: it has not ended."""
        assert self._process is not None
        status = self._process.poll()
        if status is None:
            self._ask_ranks()
            return None
        return 128 - status if status < 0 else status


class Children:
    """The children of this process, for a `with` statement: signals reach all of them."""

    def __init__(self) -> None:
        """Prepare; signals are received from the `with` statement on."""
        self.running: list[Job] = []
        self.stopped = False  # whether a signal asked this process to stop
        self._received: list[int] = []  # and not yet passed on
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Children":
        """Begin to receive the signals."""
        self._before = {n: signal.signal(n, self._receive) for n in signals_to_stop()}
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the previous handlers."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def start(self, child: Job) -> None:
        """Start another child; a signal that came before stops it too."""
        child.start()
        self.running.append(child)
        if self.stopped:
            child.stop(signal.SIGTERM)

    def next_ended(self) -> tuple[Job, int]:
        """Wait until one of them has ended, and return it and its status."""
        while True:
            for child in self.running:
                status = child.status()
                if status is not None:
                    self.running.remove(child)
                    return child, status
            while self._received:
                number = self._received.pop(0)
                for child in self.running:
                    child.stop(number)
            time.sleep(POLL_SECONDS)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.stopped = True
        # Launchers know no others.
        self._received.append(signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)


def run_child(child: Child) -> Ended:
    """Run a child to its end."""
    with Children() as children:
        children.start(child)
        _, status = children.next_ended()
    return Ended(status, children.stopped)


def last_line(output: Path) -> str:
    """Return the last line that a child has written to its file, mostly the reason of its end.

    What the deepspeed launcher writes itself, after its ranks have ended, does not count.
    """
    lines = output.read_text(errors="replace").split("\n") if output.exists() else []
    written = (line.strip() for line in reversed(lines))
    own = (line for line in written if line and not LINE_OF_LAUNCHER.match(line))
    return next(own, "it wrote nothing")


def _leave_signals_to_ranks() -> None:
    """Block what a queue sends to every process: only the ranks may act on it.

    The launcher would replace an ignored SIGTERM by its own handler, which kills ranks after 30 s.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGUSR1))
