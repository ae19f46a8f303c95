"""A simulated machine: folders for /proc, /sys and /dev, an environment."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import pytest

from pretrain.distributed.gpus import DriverAnswer, DriverGpu
from pretrain.doctor.check import Accelerators, CheckContext, Gpu

GIB = 2**30
H100 = Gpu("NVIDIA H100", 80 * GIB, 79 * GIB)
WITH_GPUS = Accelerators(
    gpus=(H100, H100),
    torch_cuda="13.0",
    driver=DriverAnswer((DriverGpu("0", "GPU-0", "NVIDIA H100", "580.1"),) * 2),
)


class Machine:
    """CheckContext below a temporary folder."""

    def __init__(self, root: Path):
        self.root = root
        for name in ("proc/self", "sys/fs/cgroup", "dev/shm", "home", "runs"):
            (root / name).mkdir(parents=True)
        self.write("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n")
        self.write("proc/self/cgroup", "0::/\n")

    def write(self, name, text):
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def context(self, *, accelerators=Accelerators(), environment=None, **values):  # noqa: B008
        given = {"HOME": str(self.root / "home")}
        found = CheckContext(
            {**given, **(environment or {})},
            self.root / "runs",
            accelerators=accelerators,
            root=self.root,
        )
        return dataclasses.replace(found, **values)


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def disk(free_bytes, *, total_bytes=None, free_files=1_000_000, num_files=2_000_000):
    """Return a reader of disks that finds this one everywhere."""
    found = SimpleNamespace(
        f_frsize=4096,
        f_blocks=(total_bytes or free_bytes) // 4096,
        f_bavail=free_bytes // 4096,
        f_files=num_files,
        f_favail=free_files,
    )
    return lambda folder: found
