"""Runs child processes, and passes on to them what asks this process to stop."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NamedTuple

from data_prep.files.program import own_packages_first
from pretrain.distributed.processes import parent_of
from pretrain.distributed.signals import signals_to_stop

CAUGHT = re.compile(rb"^SigCgt:\s*(\w+)", re.MULTILINE)  # a mask, in /proc/PID/status

ENDING_SECONDS = 1.0  # what a launcher without ranks needs at most to end by itself

LOCAL_LAUNCHER = b"deepspeed.launcher.launch"  # the lower of the launcher's two processes

# "[DATE] [ERROR] [launch.py:325:sigkill_handler] [...] exits with return code = 1"
LINE_OF_LAUNCHER = re.compile(r"\[[^]]*\] \[[A-Z]+\] \[(launch|runner)\.py:")


SignalsTo = Literal["child", "launcher", "ranks"]

POLL_SECONDS = 0.1  # between looks at several children


class Ended(NamedTuple):
    """The end of a child process."""

    status: int  # as a shell reports it: 128 + the number of the signal that killed it
    stopped: bool  # whether a signal asked this process to stop


def trainer_words(*words: str) -> list[str]:
    """Return the command line of `python -m pretrain WORDS` with this interpreter."""
    return [sys.executable, "-m", "pretrain", *words]


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
        signals_to: SignalsTo = "child",
        output: Path | None = None,
    ) -> None:
        """Prepare it.

        Args:
            words: the command line.
            variables: the environment; default: that of this process.
            signals_to: who gets the signals that this process receives meanwhile: the child; as a
                deepspeed launcher of several machines, which acts on SIGTERM and SIGINT only; or,
                below the launcher of this machine, its ranks.
            output: a file to which stdout and stderr are appended; default: those of this process.
        """
        self.words, self.output = words, output
        self._variables, self._signals_to = variables, signals_to
        self._early: list[int] = []  # signals that were received before it was started
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it gets the signals that were received since it was made."""
        stream = None if self.output is None else self.output.open("ab")
        self._process = subprocess.Popen(
            self.words,
            env=own_packages_first(os.environ if self._variables is None else self._variables),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            process_group=0,
            preexec_fn=_ignore_queue if self._signals_to == "ranks" else None,
        )
        if stream is not None:
            stream.close()
        for number in self._early:
            self.receive(number)

    def receive(self, number: int) -> None:
        """Pass a signal on."""
        if self._process is None:
            self._early.append(number)
        else:
            _pass_on(number, self._process, self._signals_to)

    @property
    def is_asked_to_stop(self) -> bool:
        """Whether a signal was received before it was started."""
        return bool(self._early)

    def status(self, *, wait: bool) -> int | None:
        """Return its status as a shell reports it; None: it is not known yet."""
        if self._process is None:
            return None
        status = self._process.wait() if wait else self._process.poll()
        return 128 - status if status is not None and status < 0 else status


class Children:
    """The children of this process, for a `with` statement: signals reach all of them."""

    def __init__(self) -> None:
        """Prepare; signals are received from the `with` statement on."""
        self.running: list[Child] = []
        self._received: int | None = None  # the last signal
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Children":
        """Begin to receive the signals."""
        self._before = {n: signal.signal(n, self._receive) for n in signals_to_stop()}
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the previous handlers."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def stopped(self) -> bool:
        """Whether a signal asked this process to stop."""
        return self._received is not None

    def start(self, child: Child) -> None:
        """Start another child; a signal that came before reaches it too."""
        sys.stdout.flush()
        self.running.append(child)  # from here on a signal reaches it
        if self._received is not None and not child.is_asked_to_stop:
            child.receive(self._received)
        try:
            child.start()
        except OSError:
            self.running.remove(child)
            raise

    def next_ended(self) -> tuple[Child, int]:
        """Wait until one of them has ended, and return it and its status."""
        while True:
            for child in self.running:
                status = child.status(wait=len(self.running) == 1)
                if status is not None:
                    self.running.remove(child)
                    return child, status
            time.sleep(POLL_SECONDS)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        del frame
        # A closed terminal: a child, in a group of its own, did not get the signal.
        number = signal.SIGTERM if number == signal.SIGHUP else number
        self._received = number
        for child in self.running:
            child.receive(number)


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


def _ignore_queue() -> None:
    """Ignore what a queue sends to every process of a job: only the ranks may act on it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def _pass_on(number: int, child: "subprocess.Popen[bytes]", signals_to: SignalsTo) -> None:
    if child.returncode is not None:
        return
    if signals_to == "launcher" and number == signal.SIGUSR1:
        number = signal.SIGTERM
    if signals_to != "ranks":
        _send(number, [child.pid])
        return
    launchers = [p for p in _children(child.pid) if LOCAL_LAUNCHER in _read(p, "cmdline")]
    ranks = [rank for launcher in launchers for rank in _children(launcher)]
    if not ranks and not any(map(_has_started_ranks, launchers)):
        # Either there is nothing to save yet, or the launcher is about to end by itself.
        timer = threading.Timer(ENDING_SECONDS, _kill_group, [child])
        timer.daemon = True
        timer.start()
    _send(number, ranks)


def _kill_group(child: "subprocess.Popen[bytes]") -> None:
    if child.returncode is None:
        _send(signal.SIGKILL, [-child.pid])


def _send(number: int, processes: Iterable[int]) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


def _has_started_ranks(launcher: int) -> bool:
    """Return whether this launcher catches SIGTERM: it ignores it until its ranks are started."""
    caught = CAUGHT.search(_read(launcher, "status"))
    return caught is not None and bool(int(caught[1], 16) >> (signal.SIGTERM - 1) & 1)


def _children(process: int) -> list[int]:
    numbers = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    return [number for number in numbers if parent_of(number) == process]


def _read(process: int, file: str) -> bytes:
    try:
        return Path(f"/proc/{process}/{file}").read_bytes()
    except OSError:  # the process has ended
        return b""
