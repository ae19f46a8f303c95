"""The launcher of this process.

A launcher that is killed leaves its processes behind as orphans: no process ends them or passes
signals on to them. The deepspeed launcher is two processes, parent and child, and the parent exits
on SIGTERM without signalling the child.

Imports no torch: a start asks this first.
"""

import itertools
import os
from pathlib import Path

# Words in the command line of the parent of a rank, of the parent of that process, and so on.
ANCESTORS = (
    ("deepspeed.launcher.launch", "torch.distributed.run", "torchrun", "sweep"),
    ("deepspeed", "deepspeed.launcher.runner"),
    ("tupelo", "pretrain"),
)


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
            parent = parent_of(self._line[-1])
            # On other machines of a job the parent of launch.py is a shell, which may end.
            if parent is None or not _is_one_of(parent, names):
                break
            self._line.append(parent)

    def is_gone(self) -> bool:
        """Return whether a process of the launcher has ended: its child has another parent then."""
        return any(parent_of(child) != parent for child, parent in itertools.pairwise(self._line))


def parent_of(pid: int) -> int | None:
    """Return the parent of a process of this machine; None: there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The second field is the name in parentheses, which may hold spaces and parentheses.
    return int(text.rpartition(")")[2].split()[1])


def _is_one_of(pid: int, names: tuple[str, ...]) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return False
    # Interpreter, script or -m module; later words may be arguments of another program.
    return any(Path(word).name in names or word in names for word in words[:4])
