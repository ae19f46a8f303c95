"""Compile the attention kernels for NVIDIA GPUs on a machine without one, and look for spills.

    python benchmarks/compile_kernels.py [--architectures 80 86 89 90 100 120] [--json FILE]

The operators are called as in training, but what they launch is compiled instead of run: with the
tiles, the arguments and the constants of a real launch; by default for sm_80 (A100) and sm_90
(H100, H200). The table shows what decides the speed: registers of a thread, bytes that did not fit
in them (spills), shared memory and tensor-core instructions. The exit status is 1 if a kernel
spills, needs more shared memory than a multiprocessor gives to one program, or multiplies fp16 or
bf16 without tensor cores.

Needs Triton 3.6 or 3.7 (its compiler has no stable interface) with ptxas and cuobjdump, as pip
brings it.
"""

import argparse
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from tabulate import tabulate

from data_prep.files.program import run_program

# Shared memory of one program; CUDA C++ Programming Guide. A100; RTX 30 and A40; RTX 40 and L40S;
# H100 and H200; B200; RTX 50.
LIMITS_KIB = {80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99}
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
POINTERS = {torch.int32: "*i32", **{dtype: f"*{name}" for name, dtype in DTYPES.items()}}

# Products of fp16 and bf16: of a warp; of four warps (Hopper); of a program (Blackwell, sm_100).
TENSOR_CORE = re.compile(r"\b(?:HMMA|HGMMA|UTCHMMA)\b")

SEQUENCES, HEADS = 32, 12  # a micro-batch of BERT-Base

# Length of the rows, whether sequences end before their rows, and dropout. The first two are
# pre-training; the others take the paths with masks, which need more registers.
CASES = {
    "whole": (512, False, 0.0),
    "dropout": (512, False, 0.1),
    "odd": (500, False, 0.0),
    "odd-dropout": (500, False, 0.1),
    "padded": (512, True, 0.0),
}
QUICK_CASES = ["whole", "dropout", "odd-dropout"]


class Launch(NamedTuple):
    """A kernel with everything that it was launched with."""

    kernel: Any
    arguments: dict[str, Any]
    options: dict[str, int]


def main() -> None:
    """Compile everything, print a table, and fail if a kernel has a fault."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the rows of the table to this file too")
    parser.add_argument(
        "--architectures", type=int, nargs="+", choices=LIMITS_KIB, default=[80, 90]
    )
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--head-widths", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=QUICK_CASES)
    chosen = parser.parse_args()
    if os.environ.get("TRITON_INTERPRET") == "1":
        sys.exit("TRITON_INTERPRET=1 runs kernels in Python; unset it to compile them")
    rows = []
    for names in itertools.product(
        chosen.architectures, chosen.dtypes, chosen.head_widths, chosen.cases
    ):
        for launch in launches(*names):
            rows.append(row(launch, *names))
    print(tabulate(rows, headers="keys"))
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=1) + "\n")
    sys.exit(int(any(row["faults"] for row in rows)))


def launches(architecture: int, dtype: str, head_width: int, case: str) -> list[Launch]:
    """Return what a forward and a backward pass launch on this architecture."""
    from pretrain.model.kernels import triton_attention, triton_kernels

    length, padded, dropout = CASES[case]
    shape = (SEQUENCES, length, 3, HEADS, head_width)
    qkv = torch.empty(shape, dtype=DTYPES[dtype])
    bias = torch.zeros(2, HEADS, length, length, dtype=DTYPES[dtype])
    lengths = torch.full((SEQUENCES,), 300, dtype=torch.int32) if padded else None
    seeds = torch.zeros(SEQUENCES, HEADS, 2, dtype=torch.int32) if dropout else None
    inputs = (qkv, bias, lengths, seeds, 0.125, dropout)
    with (
        patch.object(triton_kernels, "architecture", return_value=architecture),
        recorded_launches() as found,
    ):
        o, logsumexp = triton_attention.attention_forward(qkv, None, *inputs[1:])
        *_, products = triton_attention.attention_backward(*inputs, o, logsumexp, o)
        triton_attention.attention_bias_gradient(*inputs, logsumexp, o, products)
    return found


@contextmanager
def recorded_launches() -> Iterator[list[Launch]]:
    """Let kernels note what they are launched with instead of running."""
    from pretrain.model.kernels import triton_kernels

    found: list[Launch] = []

    def recorder(kernel: Any) -> Callable[..., None]:
        def run(*values: Any, grid: Any, warmup: bool, **named: Any) -> None:
            arguments = dict(zip(kernel.arg_names, values, strict=False))
            arguments |= {name: named[name] for name in kernel.arg_names if name in named}
            options = {name: value for name, value in named.items() if name not in arguments}
            found.append(Launch(kernel, arguments, options))

        return run

    with ExitStack() as stack:
        for name, kernel in vars(triton_kernels).items():
            if name.endswith("_kernel"):
                stack.enter_context(patch.object(kernel, "run", recorder(kernel)))
        yield found


def row(
    launch: Launch, architecture: int, dtype: str, head_width: int, case: str
) -> dict[str, Any]:
    """Compile a launch and return a row of the table."""
    compiled = compile_launch(launch, architecture)
    resources, code = (disassembled(compiled, option) for option in ("-res-usage", "-sass"))
    numbers = {name: int(value) for name, value in re.findall(r"([A-Z]+):(\d+)", resources)}
    measured = {
        "kernel": launch.kernel.__name__,
        "architecture": architecture,
        "dtype": dtype,
        "head_width": head_width,
        "case": case,
        "tile": f"{launch.arguments['NUM_QUERIES']} x {launch.arguments['NUM_KEYS']}",
        **launch.options,
        "registers": numbers["REG"],
        "spilled_bytes": numbers["STACK"] + numbers["LOCAL"],  # the kernels have no local arrays
        "shared_memory_bytes": compiled.metadata.shared + numbers["SHARED"],
        "tensor_core_instructions": len(TENSOR_CORE.findall(code)),
    }
    return {**measured, "faults": faults(measured)}


def faults(measured: dict[str, Any]) -> list[str]:
    """Return what is wrong with a compiled kernel."""
    found = []
    if measured["spilled_bytes"]:
        found.append("spills")
    if measured["shared_memory_bytes"] > LIMITS_KIB[measured["architecture"]] * 1024:
        found.append("too much shared memory")
    if measured["dtype"] != "fp32" and not measured["tensor_core_instructions"]:
        found.append("no tensor cores")
    return found


def compile_launch(launch: Launch, architecture: int) -> Any:
    """Compile a kernel for its arguments, specialised as Triton would at the launch."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature, constants, divisible = {}, {}, {}
    for index, (name, value) in enumerate(launch.arguments.items()):
        if isinstance(value, torch.Tensor):
            signature[name], number = POINTERS[value.dtype], value.data_ptr()
        elif name.isupper() or value is None or (isinstance(value, int) and value == 1):
            signature[name], constants[index,], number = "constexpr", value, 1
        elif isinstance(value, float):
            signature[name], number = "fp32", 1
        else:
            signature[name], number = "i32", value
        if number % 16 == 0:
            divisible[index,] = [["tt.divisibility", 16]]
    source = ASTSource(launch.kernel, signature, constants, divisible)
    target = GPUTarget("cuda", architecture, 32)
    return triton.compile(source, target=target, options=launch.options)


def disassembled(compiled: Any, option: str) -> str:
    """Return what NVIDIA's cuobjdump, which comes with Triton, says about a compiled kernel."""
    import triton

    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        return subprocess.run(
            [tool, option, file.name], check=True, capture_output=True, text=True
        ).stdout


if __name__ == "__main__":
    run_program(lambda _: main())
