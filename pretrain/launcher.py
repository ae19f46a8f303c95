"""Whether the launcher that started this process is still there.

A launcher that is killed leaves its processes behind as orphans: nobody ends them, and nobody
passes signals on to them. The deepspeed launcher is two processes, one below the other, of which
the upper one dies of SIGTERM without a word to the lower one.
"""

import os
from dataclasses import dataclass
from pathlib import Path

# Words of the command lines of launchers; each is looked for in the parent of the one before.
PROCESS_STARTERS = ("deepspeed.launcher.launch", "torch.distributed.run", "torchrun")
STARTERS_OF_THESE = ("deepspeed", "deepspeed.launcher.runner")


@dataclass(frozen=True)
class Process:
    """A process as the kernel describes it."""

    pid: int
    state: str  # R: runs, S: waits, D: waits for a disk, T: stopped, Z: dead, ...
    parent: int
    started: int  # in ticks since boot: tells a process from a later one of the same number


class Launcher:
    """The launcher above this process, if there is one; remembered when this is made."""

    def __init__(self) -> None:
        self._parent = os.getppid()
        self._is_launched = _is_one_of(self._parent, PROCESS_STARTERS)
        process = process_of(self._parent) if self._is_launched else None
        # On other machines of a job the parent of launch.py is a shell, which may end.
        watched = process is not None and _is_one_of(process.parent, STARTERS_OF_THESE)
        self._grandparent = process.parent if process is not None and watched else None

    def is_gone(self) -> bool:
        """Return whether a process of the launcher has ended: its children have another parent."""
        if not self._is_launched:
            return False
        if os.getppid() != self._parent:
            return True
        if self._grandparent is None:
            return False
        process = process_of(self._parent)
        return process is None or process.parent != self._grandparent


def process_of(pid: int) -> Process | None:
    """Return what the kernel says about a process of this machine; None if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The second field is the name in parentheses, which may hold spaces and parentheses.
    fields = text.rpartition(")")[2].split()
    return Process(pid, fields[0], int(fields[1]), int(fields[19]))


def _is_one_of(pid: int, names: tuple[str, ...]) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return False
    # Interpreter, script or -m module: names further on may be arguments of something else.
    return any(Path(word).name in names or word in names for word in words[:4])
