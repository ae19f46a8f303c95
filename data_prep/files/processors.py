"""How many processors, and threads of torch, a process may use; it imports what starts at once."""

import contextlib
import os
from pathlib import Path

THREADS = "OMP_NUM_THREADS"  # read by torch at its import
CPU_SHARE = Path("/sys/fs/cgroup/cpu.max")  # microseconds of processors in each period


def cpu_count() -> int:
    """Return the number of CPUs this process may use, or of those whose time a container has."""
    count = len(os.sched_getaffinity(0))
    with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
        quota, period = map(int, CPU_SHARE.read_text().split())
        count = min(count, max(1, -(-quota // period)))
    return count


def threads_each(processes: int) -> int:
    """Return the threads of each of several processes; fewer if the user has asked for fewer."""
    share = max(1, cpu_count() // processes)
    asked = os.environ.get(THREADS, "")
    return min(share, int(asked)) if asked.isdecimal() and int(asked) else share
