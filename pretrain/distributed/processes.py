"""Whether the launcher that started this process is still there.

A launcher that is killed leaves its processes behind as orphans: nobody ends them, and nobody
passes signals on to them. The deepspeed launcher is two processes, one below the other, of which
the upper one dies of SIGTERM without a word to the lower one.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from pretrain.distributed.ranks import Ranks, from_all_ranks

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


CONDITIONS = {
    "T": "is stopped (SIGSTOP or Ctrl-Z; go on with: kill -CONT {pid})",
    "t": "is stopped by a debugger",
    "D": "waits for a disk or a file server",
    "R": "computes",
    "S": "waits, and its watchdog does not answer",
}
GONE = ("Z", "X")


@dataclass(frozen=True)
class RankProcess:
    """The process of one rank."""

    rank: int
    machine: str  # and process numbers: containers on one machine have numbers of their own
    pid: int
    started: int

    def is_gone(self) -> bool:
        """Return whether it has ended; for a peer on this machine."""
        process = process_of(self.pid)
        return process is None or process.started != self.started or process.state in GONE

    def condition(self, machine: str) -> str:
        """Return what it does, as the end of a sentence that begins with its rank."""
        if self.machine != machine:
            return f"(process {self.pid}) is on another machine: look there"
        process = process_of(self.pid)
        if process is None or self.is_gone():
            return f"(process {self.pid}) is gone"
        text = CONDITIONS.get(process.state, f"is in state {process.state} of the kernel")
        return f"(process {self.pid}) {text.format(pid=self.pid)}"


def this_process(rank: int) -> RankProcess:
    """Return what the others must know about this process."""
    process = process_of(os.getpid())
    return RankProcess(rank, this_machine(), os.getpid(), process.started if process else 0)


def this_machine() -> str:
    """Return a name of this machine and of the numbers that it gives to processes."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return f"unknown machine of process {os.getpid()}"  # nothing to be seen of the others


def gather_rank_processes(ranks: Ranks) -> list[RankProcess]:
    """Return the processes of all ranks, in order; every rank must call it."""
    return from_all_ranks(this_process(ranks.rank), ranks)
