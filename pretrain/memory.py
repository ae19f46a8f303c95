"""The high-water mark of memory: what a larger batch or model would have to fit beside."""

import resource
from pathlib import Path
from typing import Literal

import torch


def peak_memory_bytes(device: Literal["cpu", "cuda"]) -> int:
    """Return the most memory that this process has held at once since it started.

    On CUDA it is what tensors took on its device, the allocator's unused reserve left out. On a
    CPU it is the resident set of the whole process, the Python packages included.
    """
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    status = Path("/proc/self/status").read_text()
    lines = [line.split() for line in status.splitlines() if line.startswith("VmHWM:")]
    # ru_maxrss only where there is nothing better (gVisor): a process begins with the one of the
    # process that started it.
    kilobytes = int(lines[0][1]) if lines else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes * 1024
