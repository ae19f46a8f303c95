"""Peak FLOP/s of a device, the reference of utilisation, and the peak memory of a process.

On an NVIDIA GPU the peak is the dense rate of its datasheet, as in published model FLOPs
utilisation (Chowdhery et al., PaLM, arXiv:2204.02311, appendix B). For other devices and fp32 it
is the measured rate of a large matrix product.
"""

import resource
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
import torch.nn.functional as F

HALF = (torch.bfloat16, torch.float16)
VOLTA = (torch.float16,)  # and Turing: their tensor cores have no bf16

# Name in PyTorch without "NVIDIA " -> FLOP/s and their types: NVIDIA datasheets, dense (newer ones
# print twice as much, "with sparsity"), fp32 accumulation.
DATASHEETS: dict[str, tuple[float, tuple[torch.dtype, ...]]] = {
    "B200": (2250e12, HALF),
    "H200": (989e12, HALF),
    "H100 80GB HBM3": (989e12, HALF),  # SXM
    "H100 PCIe": (756e12, HALF),
    "A100-SXM4-40GB": (312e12, HALF),
    "A100-SXM4-80GB": (312e12, HALF),
    "A100-PCIE-40GB": (312e12, HALF),
    "A100 80GB PCIe": (312e12, HALF),
    "L40S": (362e12, HALF),
    "A10": (125e12, HALF),
    "GeForce RTX 4090": (165e12, HALF),
    "GeForce RTX 3090": (71e12, HALF),
    "Tesla V100-SXM2-16GB": (125e12, VOLTA),
    "Tesla V100-SXM2-32GB": (125e12, VOLTA),
    "Tesla V100-PCIE-16GB": (112e12, VOLTA),
    "Tesla V100-PCIE-32GB": (112e12, VOLTA),
    "Tesla T4": (65e12, VOLTA),
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
        rate, types = DATASHEETS.get(name.removeprefix("NVIDIA "), (0.0, ()))
        if dtype in types:
            return PeakFlops(rate, f"NVIDIA datasheet, dense, {name}")
    rows, width, columns = MEASURED_SHAPES[device]
    kind = str(dtype).removeprefix("torch.")
    return PeakFlops(
        measured_peak_flops(device, dtype, rows, width, columns),
        f"measured at the start: {kind} product of {rows} x {width} and {width} x {columns}",
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


def peak_memory_bytes(device: Literal["cpu", "cuda"]) -> int:
    """Return the peak memory of this process since it started.

    On CUDA: of tensors on its device, without the unused reserve of the allocator. On a CPU: the
    resident set of the process, including the Python packages.
    """
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    status = Path("/proc/self/status").read_text()
    lines = [line.split() for line in status.splitlines() if line.startswith("VmHWM:")]
    # ru_maxrss only without VmHWM (gVisor): a process inherits that of its parent.
    kilobytes = int(lines[0][1]) if lines else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes * 1024
