"""Runs a child process to its end, and passes on to it what asks this process to stop."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Literal, NamedTuple

from data_prep.files.program import own_packages_first
from pretrain.distributed.processes import process_of
from pretrain.distributed.signals import signals_to_stop

CAUGHT = re.compile(rb"^SigCgt:\s*(\w+)", re.MULTILINE)  # a mask, in /proc/PID/status

ENDING_SECONDS = 1.0  # what a launcher without ranks needs at most to end by itself

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
        # A closed terminal: the child, in a group of its own, did not get the signal.
        number = signal.SIGTERM if number == signal.SIGHUP else number
        if child is None:
            early.append(number)
        else:
            _pass_on(number, child, signals_to)

    sys.stdout.flush()
    before = {number: signal.signal(number, receive) for number in signals_to_stop()}
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
    if signals_to == "child":
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
    return [n for n in numbers if (found := process_of(n)) and found.parent == process]


def _read(process: int, file: str) -> bytes:
    try:
        return Path(f"/proc/{process}/{file}").read_bytes()
    except OSError:  # the process has ended
        return b""
