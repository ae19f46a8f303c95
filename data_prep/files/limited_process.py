"""A process in which calls of one function have a limit of time that really holds.

A signal cannot end a call within an extension in C: Python handles it when the call has returned.
Here the kernel ends the process, and the next call begins another one.
"""

import ctypes
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, Self, TypeVar

from data_prep.files.errors import UserError
from data_prep.files.program import own_packages_first

Task = TypeVar("Task")
Result = TypeVar("Result")

PR_SET_PDEATHSIG = 1  # linux/prctl.h


class TookTooLong(Exception):
    """A call needed more seconds than it was given."""


class Crashed(Exception):
    """A call crashed an extension in C."""


class ProcessDied(UserError):
    """The process ended within a call, for a reason that another call may meet too."""


class LimitedProcess(Generic[Task, Result]):
    """The process of a function, started at its first call; for a `with` statement."""

    def __init__(self, function: Callable[[Task], Result]) -> None:
        self._function = function
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()  # what interrupts a call does not wait for it
        self._end()

    def call(self, task: Task, seconds: float) -> Result:
        """Return `function(task)`, or raise what it raises.

        Args:
            task: its argument.
            seconds: of processor time, so that a busy machine changes no result.

        Raises:
            TookTooLong: It needs more.
            Crashed: It crashed.
            ProcessDied: The process was killed, or the result cannot be sent.
        """
        process = self._process = self._process or _started(self._function)
        assert process.stdin is not None and process.stdout is not None
        try:
            pickle.dump((task, seconds), process.stdin)
            process.stdin.flush()
            result, error = pickle.load(process.stdout)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError) as ended:
            raise _reason_of(self._end()) from ended
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def _end(self) -> int | None:
        """End the process, if there is one, and return its status."""
        process, self._process = self._process, None
        if process is None:
            return None
        assert process.stdin is not None and process.stdout is not None
        with suppress(BrokenPipeError):  # of what it did not read
            process.stdin.close()
        process.stdout.close()
        return process.wait()


def _reason_of(status: int | None) -> Exception:
    """Return why a process ended within a call."""
    if status == -signal.SIGPROF:
        return TookTooLong()
    if status in (-signal.SIGSEGV, -signal.SIGABRT):
        return Crashed()
    if status == -signal.SIGKILL:
        return ProcessDied(
            "a process that read text was killed, probably for lack of memory; run the same "
            "command again with fewer workers"
        )
    return ProcessDied(f"a process that read text failed with status {status}")


def _started(function: Callable[[Task], Result]) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(
        [sys.executable, "-m", "data_prep.files.limited_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=own_packages_first(os.environ),
        process_group=0,  # Ctrl-C in a terminal ends the caller, which ends this
    )
    assert process.stdin is not None
    pickle.dump(function, process.stdin)
    return process


def main() -> None:
    """Answer calls until there are no more, or one takes too long and the kernel ends this."""
    calls, results = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # the results have their stream to themselves
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    # A caller that is gone needs no result: the kernel ends this at once, or when it is written.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    with suppress(EOFError):
        function = pickle.load(calls)
        while True:
            task, seconds = pickle.load(calls)
            signal.setitimer(signal.ITIMER_PROF, seconds)
            answer: tuple[Any, Exception | None]
            try:
                answer = function(task), None
            except Exception as error:  # the caller decides what to do about it
                answer = None, error
            signal.setitimer(signal.ITIMER_PROF, 0)
            pickle.dump(answer, results)
            results.flush()


if __name__ == "__main__":
    main()
