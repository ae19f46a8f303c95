"""The memory of the host that processes may still take."""

from pathlib import Path

UNLIMITED = 2**60  # cgroup v1 writes "no limit" as a number near 2^63


def free_memory_bytes(root: Path) -> int:
    """Return the least of what the kernel and the control groups of this process leave free."""
    lines = (root / "proc" / "meminfo").read_text().splitlines()
    values = {line.partition(":")[0]: int(line.split()[1]) * 1024 for line in lines if ":" in line}
    left = [values["MemAvailable"]]
    for folder in _memory_groups(root):
        for limit_name, used_name, cache_name in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            limit, used = (_number(folder / name) for name in (limit_name, used_name))
            if limit is not None and limit < UNLIMITED:
                left.append(int(limit - (used or 0) + _cached(folder, cache_name)))
    return max(0, min(left))


def _memory_groups(root: Path) -> list[Path]:
    """Return the folders of the control groups of this process, of versions 1 and 2."""
    base = root / "sys" / "fs" / "cgroup"
    own = root / "proc" / "self" / "cgroup"
    lines = own.read_text().splitlines() if own.is_file() else []
    found = {base: None, base / "memory": None}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        top = base if not controllers else base / "memory"
        if not controllers or "memory" in controllers.split(","):
            inner = top / path.lstrip("/")
            found |= {inner: None, **{p: None for p in inner.parents if p.is_relative_to(top)}}
    return [folder for folder in found if folder.is_dir()]


def _cached(folder: Path, name: str) -> int:
    """Return how much of the used memory holds files, which the kernel drops when it needs room."""
    file = folder / "memory.stat"
    lines = file.read_text().splitlines() if file.is_file() else []
    return next((int(line.split()[1]) for line in lines if line.split()[0] == name), 0)


def _number(file: Path) -> float | None:
    text = file.read_text().strip() if file.is_file() else "max"
    return None if text == "max" else float(text)
