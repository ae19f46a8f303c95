"""Runs a child process to its end, and passes on to it what asks this process to stop."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Literal, NamedTuple

from data_prep.files.program import own_packages_first

PASSED_ON = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)

LOCAL_LAUNCHER = b"deepspeed.launcher.launch"  # the lower of the launcher's two processes


class Ended(NamedTuple):
    """The end of a child process."""

    status: int  # as a shell reports it: 128 + the number of the signal that killed it
    stopped: bool  # whether a signal asked this process to stop


def trainer_words(*words: str) -> list[str]:
    """Return the command line of `python -m pretrain WORDS` with this interpreter."""
    return [sys.executable, "-m", "pretrain", *words]


def run_child(
    words: Sequence[str],
    *,
    variables: Mapping[str, str] | None = None,
    signals_to: Literal["child", "ranks"] = "child",
) -> Ended:
    """Run a program to its end, in a process group of its own.

    In this group, Ctrl-C would reach the deepspeed launcher, which kills its ranks after 30 s,
    saved or not.

    Args:
        words: the command line.
        variables: the environment; default: that of this process.
        signals_to: who gets the signals that this process receives meanwhile: the child, or, below
            a child that is the deepspeed launcher of this machine, its ranks.
    """
    child: subprocess.Popen[bytes] | None = None
    early: list[int] = []
    stopped = False

    def receive(number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True
        if child is None:
            early.append(number)
        else:
            _pass_on(number, child, signals_to)

    sys.stdout.flush()
    before = {number: signal.signal(number, receive) for number in PASSED_ON}
    try:
        child = subprocess.Popen(
            words,
            env=own_packages_first(os.environ if variables is None else variables),
            stdin=subprocess.DEVNULL,
            process_group=0,
            preexec_fn=_ignore_queue if signals_to == "ranks" else None,
        )
        for number in early:
            _pass_on(number, child, signals_to)
        status = child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return Ended(128 - status if status < 0 else status, stopped)


def _ignore_queue() -> None:
    """Ignore what a queue sends to every process of a job: only the ranks may act on it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def _pass_on(
    number: int, child: "subprocess.Popen[bytes]", signals_to: Literal["child", "ranks"]
) -> None:
    if child.returncode is not None:
        return
    receivers = [child.pid] if signals_to == "child" else _ranks_below(child.pid)
    with contextlib.suppress(ProcessLookupError):
        if not receivers:  # the launcher has not started a rank yet
            os.killpg(child.pid, signal.SIGKILL)
    for process in receivers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


def _ranks_below(launcher: int) -> list[int]:
    return [
        rank
        for process in _children(launcher)
        if LOCAL_LAUNCHER in _read(Path(f"/proc/{process}/cmdline"))
        for rank in _children(process)
    ]


def _children(process: int) -> list[int]:
    return [int(word) for word in _read(Path(f"/proc/{process}/task/{process}/children")).split()]


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:  # the process has ended
        return b""
