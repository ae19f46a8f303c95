"""Compiles and loads our C++ kernels for CPUs, cpu_kernels.cpp.

torch computes softmax, the sum of a bias's gradient over the batch and the cross-entropy of many
classes one after the other, each with its own passes over memory; these kernels do it in one. They
are compiled once on a machine, by the user's C++ compiler, and kept where torch keeps such things
(TORCH_EXTENSIONS_DIR). There is no lock: whoever finds nothing compiles for itself, and renames.

Afterwards there are three operators, for fp32 and bf16, which overwrite their first tensor:

    torch.ops.tupelo.softmax_(scores_BNSS, bias_NSS, lengths_B)
        Become softmax(scores + bias) over the first `lengths_B` keys (int32, at least 1).
    torch.ops.tupelo.softmax_backward_(gradients_BNSS, weights_BNSS, has_bias)
        Become the gradient of the scores from that of the softmax `weights_BNSS`; return the
        gradient of the bias, without any element where there is none.
    torch.ops.tupelo.cross_entropy_(logits_MV, bias_V, labels_M, ignored)
        Become the gradient of the summed cross-entropy of logits + bias; return the losses (0
        where the label is `ignored`) and the gradient of the bias.

Biases, their gradients and the losses are fp32.
"""

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch.utils import cpp_extension

SOURCE = Path(__file__).with_suffix(".cpp")
COMPILER = "g++"  # whose OpenMP is that of torch
VECTOR_FLAGS = {
    "AVX2": "-mavx2 -mfma -mf16c",
    "AVX512": "-mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c",
}
KERNEL_TYPES = (torch.float32, torch.bfloat16)
LIMIT_SECONDS = 600


class KernelError(Exception):
    """The kernels cannot be compiled or loaded; the message is one line."""


def obstacle_to_cpu_kernels() -> str | None:
    """Return why there can be no kernels on this machine, or None; compiles nothing."""
    capability = torch.backends.cpu.get_cpu_capability()
    if capability not in VECTOR_FLAGS:
        return f"they are made for {' and '.join(VECTOR_FLAGS)}, and this CPU is {capability}"
    if shutil.which(COMPILER) is None:
        return f"there is no {COMPILER} to compile them"
    return None


@functools.cache
def load_cpu_kernels() -> None:
    """Make `torch.ops.tupelo` known to this process; compile it if nobody has yet.

    Raises:
        KernelError: there is an obstacle, or the compiler or the loader fails.
    """
    if (obstacle := obstacle_to_cpu_kernels()) is not None:
        raise KernelError(obstacle)
    compile_command = _compile_command()
    library = _library(compile_command)
    try:
        if not library.exists():
            _build(compile_command, library)
        torch.ops.load_library(str(library))  # type: ignore[no-untyped-call]
    except OSError as error:
        raise KernelError(f"{library}: {error.__cause__ or error}") from error


def _compile_command() -> list[str]:
    """Return compiler and flags, but for the output."""
    capability = torch.backends.cpu.get_cpu_capability()
    defines = [f"CPU_CAPABILITY={capability}", f"CPU_CAPABILITY_{capability}"]
    if not torch.compiled_with_cxx11_abi():
        defines.append("_GLIBCXX_USE_CXX11_ABI=0")
    return [
        *(shutil.which(COMPILER) or COMPILER, "-c", "-std=c++20", "-O3", "-fPIC", "-fopenmp", "-w"),
        *VECTOR_FLAGS[capability].split(),
        *(f"-D{define}" for define in defines),
        *(f"-I{folder}" for folder in cpp_extension.include_paths()),
        str(SOURCE),
    ]


def _library(compile_command: list[str]) -> Path:
    """Return the place of what the command leads to; named after all that it depends on."""
    identity = f"{torch.__version__} {compile_command} ".encode() + SOURCE.read_bytes()
    root = os.environ.get("TORCH_EXTENSIONS_DIR") or cpp_extension.get_default_build_root()
    return Path(root) / f"tupelo_cpu_kernels_{hashlib.sha256(identity).hexdigest()[:16]}.so"


def _build(compile_command: list[str], library: Path) -> None:
    print("compiling kernels for this CPU, once on this machine ...", file=sys.stderr)
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        compiled, linked = Path(folder, "kernels.o"), Path(folder, library.name)
        _run([*compile_command, "-o", str(compiled)])
        # Without -fopenmp: the threads are those of the library that torch has loaded.
        torch_libraries = [f"-L{folder}" for folder in cpp_extension.library_paths()]
        command = [compile_command[0], "-shared", str(compiled), *torch_libraries]
        _run([*command, "-ltorch_cpu", "-lc10", "-o", str(linked)])
        linked.replace(library)


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise KernelError(f"{command[0]} takes longer than {error.timeout:.0f} s") from error
    if done.returncode:
        lines = done.stderr.splitlines()
        errors = [line for line in lines if "error" in line] or lines or ["no message"]
        raise KernelError(f"{command[0]} fails: {errors[0][:300]}")
