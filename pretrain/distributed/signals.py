"""Requests to stop: a signal, or the end of the process that has started this one.

On SIGTERM (a queue, `kill`, a spot machine), SIGUSR1 (Slurm's --signal=USR1@120), SIGINT (Ctrl-C)
or SIGHUP (a closed terminal; not under nohup) the training loop saves and exits after its step. A
second signal, but SIGUSR1, ends the process at once.
"""

import os
import select
import signal
import time
from types import FrameType
from typing import Any, Literal

import psutil

from pretrain.distributed.processes import starter

SIGNALS = frozenset({signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP})

# One Ctrl-C reaches a process twice: from the terminal, and passed on by its launcher.
ECHO_SECONDS = 2.0


class Interruption:
    """Records whether this process was asked to stop; for a `with` statement in the main thread.

    Before `begin_training` a signal ends the process at once, with one line: there is nothing to
    save. After `leave` a signal ends the process only if it is still there after `ECHO_SECONDS`.
    """

    def __init__(self, *, prints: bool) -> None:
        """Prepare; signals are received from the `with` statement on."""
        self._cause: str | None = None
        self._prints = prints
        self._stage: Literal["set-up", "training", "leaving"] = "set-up"
        self._cause_at = 0.0
        self._starter = starter()
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interruption":
        """Begin to receive the signals."""
        self._previous = {n: signal.signal(n, self._receive) for n in signals_to_stop()}
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the previous handlers; a process that was asked to stop ignores repetitions."""
        for number, handler in self._previous.items():
            repeats = number == signal.SIGUSR1 and self._cause is not None
            signal.signal(number, signal.SIG_IGN if repeats else handler)

    @property
    def cause(self) -> str | None:
        """Return what asked it to stop, such as SIGTERM; None: nothing has."""
        # 0: of another container, invisible from here
        if self._cause is None and (pid := self._starter) and not psutil.pid_exists(pid):
            self._stop("the process that started it is gone")
        return self._cause

    def begin_training(self) -> None:
        """Let signals request a save from now on."""
        self._stage = "training"

    def leave(self) -> None:
        """Ignore signals while this process exits: it has saved, or it has failed."""
        self._stage, self._cause_at = "leaving", time.monotonic()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if self._stage == "set-up":
            self._say(f"stopped before the first step ({name}); there is nothing to save")
            os._exit(128 + number)
        if self._stage == "training" and self._cause is None:
            self._stop(name)
        # `tupelo` repeats SIGUSR1, in case that its ranks did not exist yet: see `Children`.
        elif number != signal.SIGUSR1 and time.monotonic() - self._cause_at > ECHO_SECONDS:
            self._say(f"{name}: ended at once")
            os._exit(128 + number)

    def _stop(self, cause: str) -> None:
        self._cause, self._cause_at = cause, time.monotonic()
        self._say(f"{cause}: saving after this step; a second signal ends at once")

    def _say(self, line: str) -> None:
        silence_unread_output()
        if self._prints:
            # Not by sys.stderr, which the handler may have interrupted in the middle of a line.
            os.write(2, f"\n{line}\n".encode())


def signals_to_stop() -> set[signal.Signals]:
    """Return SIGNALS; without SIGHUP under nohup, which ignores it."""
    has_nohup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return {number for number in SIGNALS if not (has_nohup and number == signal.SIGHUP)}


def silence_unread_output() -> None:
    """Redirect output whose reader is gone to /dev/null.

    Ctrl-C in `./run_pretrain.sh ... | tee log` ends tee too; the next line of the progress bar
    would then end the run before it has saved.
    """
    for descriptor in (1, 2):
        poll = select.poll()
        poll.register(descriptor, 0)
        # The write end of a pipe reports POLLERR when its reader is gone.
        if any(event & select.POLLERR for _, event in poll.poll(0)):
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
