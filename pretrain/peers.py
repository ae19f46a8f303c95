"""The processes of the other ranks: which they are, and in what state those on this machine are."""

import os
from dataclasses import dataclass
from pathlib import Path

from pretrain.launcher import process_of
from pretrain.ranks import Ranks, from_all_ranks

CONDITIONS = {
    "T": "is stopped (SIGSTOP or Ctrl-Z; go on with: kill -CONT {pid})",
    "t": "is stopped by a debugger",
    "D": "waits for a disk or a file server",
    "R": "computes",
    "S": "waits, and its watchdog does not answer",
}
GONE = ("Z", "X")


@dataclass(frozen=True)
class Peer:
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


def this_process(rank: int) -> Peer:
    """Return what the others must know about this process."""
    process = process_of(os.getpid())
    return Peer(rank, this_machine(), os.getpid(), process.started if process else 0)


def this_machine() -> str:
    """Return a name of this machine and of the numbers that it gives to processes."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return f"unknown machine of process {os.getpid()}"  # nothing to be seen of the others


def gather_peers(ranks: Ranks) -> list[Peer]:
    """Return the processes of all ranks, in order; every rank must call it."""
    return from_all_ranks(this_process(ranks.rank), ranks)
