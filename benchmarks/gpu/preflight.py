"""The first half minute on a GPU: does torch compute, does NCCL start, are our kernels right?

On a CPU: with TRITON_INTERPRET=1, in small.
"""

import sys
import time
from collections.abc import Callable
from importlib import import_module

import torch
from triton.testing import do_bench

from pretrain.distributed.ranks import start_ranks
from pretrain.kernels.triton_attention import triton_attention

reference = import_module("tests.pretrain.model.attention_reference")  # tests have no types
ON_GPU = torch.cuda.is_available()
SIZE, LENGTHS, HEADS, HEAD_WIDTH = (8192, (512, 192), 3, 64) if ON_GPU else (256, (24,), 1, 16)
BOUND = 1.5e-2  # of bf16: the relative error in the Frobenius norm


def main() -> None:
    """Print rates and errors; the exit status is 1 if a kernel is wrong."""
    print(torch.cuda.get_device_properties(0) if ON_GPU else "no GPU", flush=True)
    one, other = (torch.randn(SIZE, SIZE, device=reference.DEVICE).bfloat16() for _ in range(2))
    rate = 2 * SIZE**3 / seconds_of(lambda: one @ other)
    copied = 4 * SIZE**2 / seconds_of(lambda: other.copy_(one))
    print(f"bf16 product {rate / 1e12:.2f} TFLOP/s, copy {copied / 1e12:.2f} TB/s", flush=True)
    began = time.perf_counter()
    total = torch.ones(4, device=start_ranks().device)
    torch.distributed.all_reduce(total)
    print(f"one rank: {total.tolist()} in {time.perf_counter() - began:.1f} s", flush=True)
    if reference.needs_triton.args[0]:
        sys.exit(print(reference.needs_triton.kwargs["reason"]))
    kinds = (torch.bfloat16, torch.float16)
    worst = [largest_error(length, dtype) for length in LENGTHS for dtype in kinds]
    sys.exit(0 if all(error < BOUND for error in worst) else "error: a kernel is wrong")


def seconds_of(action: Callable[[], object]) -> float:
    """Return the median seconds of an action."""
    if ON_GPU:
        return float(do_bench(action, return_mode="median")) / 1e3
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def largest_error(length: int, dtype: torch.dtype) -> float:
    """Return the largest relative error of output and gradients against fp64, and print each."""
    given = reference.example(length, heads=HEADS, head_width=HEAD_WIDTH, dtype=dtype)
    arguments = (*given[:4], None, 0.1, given[4])
    found = reference.with_gradients(triton_attention, *arguments)
    expected = reference.exact(*arguments)
    pairs = zip(found, expected, strict=True)
    errors = torch.stack([(own.double() - right).norm() / right.norm() for own, right in pairs])
    each = ", ".join(f"{error:.1e}" for error in errors.tolist())
    print(f"kernels, {dtype}, {length}: o, dq, dk, dv, dbias {each}", flush=True)
    return float(errors.detach().max())  # NaN if one is


if __name__ == "__main__":
    main()
