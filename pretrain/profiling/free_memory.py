"""The memory of the host that processes may still take."""

import re
from pathlib import Path


def free_memory_bytes(root: Path) -> int:
    """Return what the kernel, and the limit of a container, leave free."""
    [available] = re.findall(r"MemAvailable: *(\d+)", (root / "proc/meminfo").read_text())
    limit, used = (root / f"sys/fs/cgroup/memory.{name}" for name in ("max", "current"))
    if not limit.is_file() or limit.read_text().strip() == "max":
        return int(available) * 1024
    return min(int(available) * 1024, int(limit.read_text()) - int(used.read_text()))
