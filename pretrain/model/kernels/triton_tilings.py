"""The tile sizes of the attention kernels by GPU.

**Only the row (90, 64) is timed**: on an H200, bf16, 64 rows of 512 tokens, 12 heads of 64, the
fastest with and without dropout that spill registers on no other GPU. The others come from the
compiler. None exceeds the shared memory, and none spills on sm_80 and 90
(`python benchmarks/compile_kernels.py` checks it); elsewhere some do for rows that no tile divides,
with dropout: 8 bytes on sm_120, 56 on sm_100 with heads of 128. Where possible several programs fit
on a multiprocessor, so that one computes exponentials while another loads. Every launch reads its
table: a search replaces an entry, as in
`TILINGS[90, 64] = TILINGS[90, 64]._replace(key_value_gradient=Tiling(32, 64, 4, 3))`.
"""

from typing import NamedTuple

import torch

# Of the heads that the kernels are compiled for.
HEAD_WIDTHS = (16, 32, 64, 128)


class Tiling(NamedTuple):
    """The size of a tile, its warps of 32 threads and the stages of its pipeline."""

    queries: int
    keys: int
    warps: int
    stages: int


class Tilings(NamedTuple):
    """The tiling of each kernel."""

    forward: Tiling
    query_gradient: Tiling
    key_value_gradient: Tiling
    bias_gradient: Tiling


# fp16 and bf16. First the architecture (80: A100), then the widest head that the row is for. The
# rows for 80 need less than 99 KiB of shared memory, the limit of the consumer GPUs (86, 89, 120).
TILINGS = {
    (80, 64): Tilings(
        Tiling(64, 64, 4, 3), Tiling(64, 32, 4, 2), Tiling(64, 32, 4, 2), Tiling(64, 32, 4, 2)
    ),
    (80, 128): Tilings(
        Tiling(64, 64, 8, 2), Tiling(64, 32, 8, 2), Tiling(32, 64, 8, 2), Tiling(64, 32, 4, 2)
    ),
    (90, 64): Tilings(
        Tiling(64, 64, 4, 3), Tiling(64, 32, 4, 3), Tiling(32, 64, 4, 3), Tiling(64, 64, 8, 2)
    ),
    (90, 128): Tilings(
        Tiling(128, 32, 8, 2), Tiling(128, 64, 8, 2), Tiling(32, 128, 8, 2), Tiling(64, 64, 8, 2)
    ),
}
# fp32 is multiplied without tensor cores, on every architecture: small tiles, for exactness only.
FP32_TILINGS = {
    64: Tilings(
        Tiling(32, 32, 4, 2), Tiling(32, 32, 4, 2), Tiling(16, 32, 4, 2), Tiling(16, 32, 4, 2)
    ),
    128: Tilings(
        Tiling(16, 16, 4, 2), Tiling(16, 16, 4, 2), Tiling(16, 16, 4, 1), Tiling(16, 16, 4, 2)
    ),
}


def tilings(head_width: int, dtype: torch.dtype, architecture: int) -> Tilings:
    """Return the tiling of the kernels from a table: a search at start would take minutes.

    A search could also choose differently from run to run, and change the order of the sums.
    `architecture` is ten times the compute capability. Data-centre GPUs from Hopper on (90 to
    103) have more shared memory than A100, the consumer ones (86, 89, 120) less.
    """
    row = 64 if head_width <= 64 else 128
    if dtype == torch.float32:
        return FP32_TILINGS[row]
    return TILINGS[90 if 90 <= architecture < 120 else 80, row]
