"""Peak FLOP/s of a device, the reference of utilisation, and the peak memory of a process.

On an NVIDIA GPU the peak is the dense rate of its datasheet, as in published model FLOPs
utilisation (Chowdhery et al., PaLM, arXiv:2204.02311, appendix B). For other devices and fp32 it
is the measured rate of a large matrix product.
"""

import re
import resource
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F

HALF = (torch.bfloat16, torch.float16)
VOLTA = (torch.float16,)  # and Turing: their tensor cores have no bf16


class Gpu(NamedTuple):
    """What a run depends on of a GPU, where it need not be there."""

    flops_per_second: float
    types: tuple[torch.dtype, ...]  # of the matrix products that run at this rate
    memory_bytes: int


# Name in PyTorch without "NVIDIA ": NVIDIA datasheets, dense (newer ones print twice as much, "with
# sparsity"), fp32 accumulation. The memory is what the driver leaves of it, rounded down to GiB.
DATASHEETS: dict[str, Gpu] = {
    "B200": Gpu(2250e12, HALF, 178 * 2**30),
    "H200": Gpu(989e12, HALF, 139 * 2**30),
    "H100 80GB HBM3": Gpu(989e12, HALF, 79 * 2**30),  # SXM
    "H100 PCIe": Gpu(756e12, HALF, 79 * 2**30),
    "A100-SXM4-40GB": Gpu(312e12, HALF, 39 * 2**30),
    "A100-SXM4-80GB": Gpu(312e12, HALF, 79 * 2**30),
    "A100-PCIE-40GB": Gpu(312e12, HALF, 39 * 2**30),
    "A100 80GB PCIe": Gpu(312e12, HALF, 79 * 2**30),
    "L40S": Gpu(362e12, HALF, 44 * 2**30),
    "A10": Gpu(125e12, HALF, 22 * 2**30),
    "GeForce RTX 4090": Gpu(165e12, HALF, 23 * 2**30),
    "GeForce RTX 3090": Gpu(71e12, HALF, 23 * 2**30),
    "Tesla V100-SXM2-16GB": Gpu(125e12, VOLTA, 15 * 2**30),
    "Tesla V100-SXM2-32GB": Gpu(125e12, VOLTA, 31 * 2**30),
    "Tesla V100-PCIE-16GB": Gpu(112e12, VOLTA, 15 * 2**30),
    "Tesla V100-PCIE-32GB": Gpu(112e12, VOLTA, 31 * 2**30),
    "Tesla T4": Gpu(65e12, VOLTA, 14 * 2**30),
}

# Rows, inner width and columns of the measured product; a GPU needs more to be busy.
MEASURED_SHAPES = {"cpu": (4096, 512, 2048), "cuda": (8192, 8192, 8192)}
MEASURED_SECONDS = 0.5


@dataclass(frozen=True)
class PeakFlops:
    """FLOP/s of one device, and the source of the number."""

    flops_per_second: float
    source: str


def peak_flops(device: Literal["cpu", "cuda"], dtype: torch.dtype) -> PeakFlops:
    """Return the peak rate of dense matrix products of one rank's device.

    On a CPU the ranks of a machine measure at the same time, so they share it as in training.
    """
    if device == "cuda":
        name = torch.cuda.get_device_name()
        gpu = DATASHEETS.get(name.removeprefix("NVIDIA "))
        if gpu is not None and dtype in gpu.types:
            return PeakFlops(gpu.flops_per_second, f"NVIDIA datasheet, dense, {name}")
    rows, width, columns = MEASURED_SHAPES[device]
    kind = str(dtype).removeprefix("torch.")
    rate = measured_peak_flops(device, dtype, rows, width, columns)
    if device == "cuda":  # in fp32 these products take more than many a run
        torch.cuda.reset_peak_memory_stats()
    return PeakFlops(
        rate, f"measured at the start: {kind} product of {rows} x {width} and {width} x {columns}"
    )


def measured_peak_flops(
    device: Literal["cpu", "cuda"], dtype: torch.dtype, rows: int, width: int, columns: int
) -> float:
    """Return the FLOP/s of the fastest of several matrix products, after one for warm-up.

    As many as fit into `MEASURED_SECONDS`, at least two.
    """
    # Random: with constants a GPU draws less power and runs faster than in training.
    inputs = torch.randn(rows, width, device=device).to(dtype)
    weights = torch.randn(columns, width, device=device).to(dtype)
    durations: list[float] = []
    while len(durations) < 3 or sum(durations) < MEASURED_SECONDS:
        start = time.perf_counter()
        F.linear(inputs, weights)
        if device == "cuda":
            torch.cuda.synchronize()
        durations.append(time.perf_counter() - start)
    return 2 * rows * width * columns / min(durations[1:])


def free_memory_bytes(root: Path = Path("/")) -> int:
    """Return what the kernel, and the limit of a container, leave free for processes."""
    [available] = re.findall(r"MemAvailable: *(\d+)", (root / "proc/meminfo").read_text())
    limit, used = (root / f"sys/fs/cgroup/memory.{name}" for name in ("max", "current"))
    if not limit.is_file() or limit.read_text().strip() == "max":
        return int(available) * 1024
    # What files in memory take, the kernel gives away.
    files = re.findall(r"active_file (\d+)", (used.parent / "memory.stat").read_text())
    taken = int(used.read_text()) - sum(map(int, files))
    return min(int(available) * 1024, int(limit.read_text()) - taken)


def peak_memory_bytes(device: Literal["cpu", "cuda"]) -> int:
    """Return the peak memory of this process since it started, or measured its peak rate.

    On CUDA: of tensors on its device, without the unused reserve of the allocator. On a CPU: the
    resident set of the process, including Python packages and mapped shards.
    """
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    status = Path("/proc/self/status").read_text()
    lines = [line.split() for line in status.splitlines() if line.startswith("VmHWM:")]
    # ru_maxrss only without VmHWM (gVisor): a process inherits that of its parent.
    kilobytes = int(lines[0][1]) if lines else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes * 1024
