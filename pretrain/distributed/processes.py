"""The state of other processes: the launcher of this one, and the ranks on this machine.

A launcher that is killed leaves its processes behind as orphans: no process ends them or passes
signals on to them. The deepspeed launcher is two processes, parent and child, and the parent exits
on SIGTERM without signalling the child.

Imports no torch: a start asks this first.
"""

import itertools
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

# Words in the command line of the parent of a rank, of the parent of that process, and so on.
ANCESTORS = (
    ("deepspeed.launcher.launch", "torch.distributed.run", "torchrun", "sweep"),
    ("deepspeed", "deepspeed.launcher.runner"),
    ("tupelo", "pretrain"),
)

# State in /proc/PID/stat -> what a message says.
CONDITIONS = {
    "T": "is stopped (SIGSTOP or Ctrl-Z; continue it with: kill -CONT {pid})",
    "t": "is stopped by a debugger",
    "D": "waits for a disk or a file server",
    "R": "computes",
    "S": "waits, and its watchdog does not answer",
}
GONE = ("Z", "X")


@dataclass(frozen=True)
class Process:
    """A process as /proc reports it."""

    pid: int
    state: str  # see CONDITIONS and GONE
    parent: int
    of_children: int  # processor time of those that have ended and theirs, in ticks
    started: int  # in ticks since boot: distinguishes it from a later process of the same number


def is_launched() -> bool:
    """Return whether a launcher started this process, as one of the ranks of a job."""
    return "RANK" in os.environ


def is_first_process() -> bool:
    """Return whether this process will be the first rank."""
    return os.environ.get("RANK", "0") == "0"


def launched_ranks() -> int | None:
    """Return how many ranks the launcher of this process started; None without a launcher."""
    return int(os.environ["WORLD_SIZE"]) if "WORLD_SIZE" in os.environ else None


class Launcher:
    """The launcher of this process at the time of construction, if there is one."""

    def __init__(self) -> None:
        self._line = [os.getpid()]  # this process, its parent, and so on
        for names in ANCESTORS:
            process = process_of(self._line[-1])
            # On other machines of a job the parent of launch.py is a shell, which may end.
            if process is None or not _is_one_of(process.parent, names):
                break
            self._line.append(process.parent)

    def is_gone(self) -> bool:
        """Return whether a process of the launcher has ended: its child has another parent then."""
        for child, parent in itertools.pairwise(self._line):
            process = process_of(child)
            if process is None or process.parent != parent:
                return True
        return False


def process_of(pid: int) -> Process | None:
    """Return a process of this machine; None if there is no process of that number."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The second field is the name in parentheses, which may hold spaces and parentheses.
    fields = text.rpartition(")")[2].split()
    of_children = int(fields[13]) + int(fields[14])  # user, system
    return Process(pid, fields[0], int(fields[1]), of_children, int(fields[19]))


def wanted_seconds(pids: Iterable[int]) -> float | None:
    """Return the processor time that processes and those below them used or had to wait for.

    That of threads that have ended is not in it, nor what processes that have ended had to wait.
    None: the kernel does not count it.
    """
    processes = [process for n in _numbers(Path("/proc")) if (process := process_of(n))]
    wanted, total = set(pids), 0
    while more := {process.pid for process in processes if process.parent in wanted} - wanted:
        wanted |= more
    ended = sum(process.of_children for process in processes if process.pid in wanted)
    for pid in wanted:
        for thread in _numbers(Path(f"/proc/{pid}/task")):
            try:
                used, waited = Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[:2]
            except OSError:
                if not Path("/proc/self/schedstat").exists():
                    return None
                continue  # it has ended
            total += int(used) + int(waited)
    return total / 1e9 + ended / os.sysconf("SC_CLK_TCK")


def _numbers(folder: Path) -> list[int]:
    try:
        return [int(name) for name in os.listdir(folder) if name.isdecimal()]
    except OSError:  # the process has ended
        return []


def _is_one_of(pid: int, names: tuple[str, ...]) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return False
    # Interpreter, script or -m module; later words may be arguments of another program.
    return any(Path(word).name in names or word in names for word in words[:4])


@dataclass(frozen=True)
class RankProcess:
    """The process of one rank."""

    rank: int
    machine: str  # and namespace: containers on one machine have process numbers of their own
    pid: int
    started: int

    def is_gone(self) -> bool:
        """Return whether it has ended; for a rank on this machine."""
        process = process_of(self.pid)
        return process is None or process.started != self.started or process.state in GONE

    def condition(self, machine: str) -> str:
        """Return its state for a message, as seen from `machine`."""
        if self.machine != machine:
            return f"(process {self.pid}) is on another machine: look there"
        process = process_of(self.pid)
        if process is None or self.is_gone():
            return f"(process {self.pid}) is gone"
        text = CONDITIONS.get(process.state, f"is in state {process.state} of the kernel")
        return f"(process {self.pid}) {text.format(pid=self.pid)}"


def this_process(rank: int) -> RankProcess:
    """Return the process of this rank."""
    process = process_of(os.getpid())
    return RankProcess(rank, this_host(), os.getpid(), process.started if process else 0)


def this_host() -> str:
    """Return an identifier of this machine and of the namespace of its process numbers."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return f"unknown machine of process {os.getpid()}"  # so that no rank counts as a neighbour
