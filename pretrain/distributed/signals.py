"""Requests to stop: a signal, or the end of the launcher.

On SIGTERM (a queue, `kill`, a spot machine), SIGUSR1 (Slurm's --signal=USR1@120), SIGINT (Ctrl-C)
or SIGHUP (a closed terminal; not under nohup) the training loop saves and exits after its step. A
second signal ends the process at once.

Python runs signal handlers between instructions of the main thread, which may be waiting in a
collective for ever. So a thread receives the signals, through the file descriptor to which Python's
handler in C writes them at once (`signal.set_wakeup_fd`).
"""

import contextlib
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any, Literal, NoReturn

from pretrain.distributed.processes import Launcher

SIGNALS = frozenset({signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP})

# One Ctrl-C reaches a process twice: from the terminal, and passed on by its launcher.
ECHO_SECONDS = 2.0

POLL_SECONDS = 1.0

END = b"\0"  # ends the thread; 0 is not the number of a signal


class Interruption:
    """Records whether this process was asked to stop; for a `with` statement in the main thread.

    Before `begin_training` a signal ends the process at once, with one line: there is nothing to
    save. After `leave` a signal ends the process only if it is still there after `ECHO_SECONDS`.
    """

    def __init__(self, *, prints: bool) -> None:
        """Prepare; signals are received from the `with` statement on.

        Args:
            prints: whether this rank prints the messages.
        """
        self.cause: str | None = None  # what asked it to stop, such as SIGTERM
        self._prints = prints
        self._stage: Literal["set-up", "training", "leaving"] = "set-up"
        self._cause_at = 0.0
        self._launcher = Launcher()
        self._reader, self._writer = socket.socketpair()
        self._thread = threading.Thread(target=self._listen, name="interruption", daemon=True)
        self._previous: dict[signal.Signals, Any] = {}
        self._previous_descriptor = -1

    def __enter__(self) -> "Interruption":
        """Begin to receive the signals."""
        self._writer.setblocking(False)
        self._previous_descriptor = signal.set_wakeup_fd(
            self._writer.fileno(), warn_on_full_buffer=False
        )
        self._previous = {n: signal.signal(n, _leave_to_thread) for n in signals_to_stop()}
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Restore the previous handlers."""
        del kind, error, trace
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._previous_descriptor)
        # Closing it would not end the thread: forked processes have it open too.
        self._writer.send(END)
        self._thread.join()
        self._writer.close()
        self._reader.close()

    def begin_training(self) -> None:
        """Let signals request a save from now on."""
        self._stage = "training"

    def leave(self) -> None:
        """Ignore signals while this process exits: it has saved, or it has failed."""
        self._stage, self._cause_at = "leaving", time.monotonic()

    def _listen(self) -> None:
        while True:
            if select.select([self._reader], [], [], POLL_SECONDS)[0]:
                received = self._reader.recv(64)
                if END in received:
                    return
                # Python writes the numbers of other signals too, such as SIGCHLD.
                for number in filter(SIGNALS.__contains__, received):
                    self._note(signal.Signals(number).name, 128 + number)
            elif self.cause is None and self._launcher.is_gone():
                self._note("its launcher is gone", 1)

    def _note(self, cause: str, status: int) -> None:
        now = time.monotonic()
        if self._stage == "set-up":
            self._exit(f"stopped before the first step ({cause}); there is nothing to save", status)
        elif self._stage == "training" and self.cause is None:
            self.cause, self._cause_at = cause, now
            self._say(f"{cause}: saving after this step; a second signal ends at once")
        elif now - self._cause_at > ECHO_SECONDS:
            self._exit(f"{cause}: ended at once", status)

    def _exit(self, line: str, status: int) -> NoReturn:
        try:
            self._say(line)
        finally:
            os._exit(status)

    def _say(self, line: str) -> None:
        silence_unread_output()
        if self._prints:
            # One write: other ranks and a progress bar write to the same stream.
            sys.stderr.write(f"\n{line}\n")
            sys.stderr.flush()


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


@contextlib.contextmanager
def signals_blocked() -> Iterator[None]:
    """Block the signals; processes that are forked inside never receive them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_only_with_parent(parent: int) -> None:
    """Ignore the signals that reach the whole job, except SIGTERM from the parent.

    For loader workers: a terminal and Slurm signal them too, and the run needs their batches for
    its last step. The parent ends them by SIGTERM.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)

    def listen() -> None:
        while signal.sigwaitinfo({signal.SIGTERM}).si_pid != parent:
            pass
        os._exit(0)

    threading.Thread(target=listen, name="parent's SIGTERM", daemon=True).start()


def _leave_to_thread(number: int, frame: FrameType | None) -> None:
    del number, frame
