"""Programs that a session starts: they end with it, and with all that they started."""

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1  # linux/prctl.h
GRACE_SECONDS = 10.0  # between SIGINT, at which pytest writes its report, and SIGKILL


def start(
    words: Sequence[str],
    log: Path,
    *,
    variables: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> "subprocess.Popen[bytes]":
    """Start a program in a process group of its own.

    Args:
        words: of its command line.
        log: its output is appended to this file.
        variables: of its environment, besides those of this process.
        folder: in which it runs; default: the current one.
    """
    parent = os.getpid()

    def die_with_parent() -> None:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    with log.open("ab") as output:
        return subprocess.Popen(
            words,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(variables or {})},
            start_new_session=True,
            preexec_fn=die_with_parent,
        )


def end(process: "subprocess.Popen[bytes]", grace: float = GRACE_SECONDS) -> None:
    """Interrupt a program, and after a grace period kill it with all that it started.

    Ranks of torchrun are in sessions of their own, and lose their parent when it is killed.
    """
    # Late, so that a Python without packages is reported by the probe.
    from psutil import NoSuchProcess, Process  # type: ignore[import-untyped]

    is_running = process.poll() is None
    started = Process(process.pid).children(recursive=True) if is_running else []
    if grace and is_running:
        _send(process, signal.SIGINT)
        deadline = time.monotonic() + grace
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
    _send(process, signal.SIGKILL)  # what it left behind, too
    for descendant in started:
        with contextlib.suppress(NoSuchProcess):
            descendant.kill()
    process.wait()


def _send(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def last_line(log: Path) -> str:
    """Return the last line of the output that is not empty."""
    text = log.read_text(errors="replace") if log.exists() else ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no output"
