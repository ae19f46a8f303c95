"""The C++ kernels for CPUs: compiled, loaded, and called as differentiable functions.

Between two matrix products torch runs one operation after the other, each with its own passes over
memory; a kernel makes one pass. cpu/softmax.cpp is compiled by the user's C++ compiler at the first
start on a machine, and the library is kept where torch keeps extensions (TORCH_EXTENSIONS_DIR).
There is no lock: a process that finds no library compiles its own and renames it into place.

Functions whose names end with _ overwrite their first tensor, fp32 or bf16. Biases, their gradients
and losses are fp32; all is contiguous. They raise `KernelError` without the library, and
IndexError at a label or a length out of bounds.

Shape letters as in positions.py.
"""

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils import cpp_extension

FOLDER = Path(__file__).parent / "cpu"
SOURCE, HEADER = FOLDER / "softmax.cpp", FOLDER / "vectors.h"
COMPILER = "g++"  # whose OpenMP is that of torch
VECTOR_FLAGS = {
    "AVX2": "-mavx2 -mfma -mf16c",
    "AVX512": "-mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c",
}
CPU_FEATURES = Path("/proc/cpuinfo")
KERNEL_TYPES = (torch.float32, torch.bfloat16)


class KernelError(Exception):
    """The kernels cannot be compiled or loaded; the message is one line."""


def obstacle_to_cpu_kernels() -> str | None:
    """Return why the kernels are not available on this machine, or None; compiles nothing."""
    capability = torch.backends.cpu.get_cpu_capability()
    if capability not in VECTOR_FLAGS:
        return f"they are made for {' and '.join(VECTOR_FLAGS)}, and this CPU is {capability}"
    if shutil.which(COMPILER) is None:
        return f"there is no {COMPILER} to compile them"
    return None


@cache
def load_cpu_kernels() -> ctypes.CDLL:
    """Return the functions of the library, compiling it if necessary.

    Raises:
        KernelError: there is an obstacle, or the compiler or the loader fails.
    """
    if (obstacle := obstacle_to_cpu_kernels()) is not None:
        raise KernelError(obstacle)
    compile_command = _compile_command()
    try:
        library = _library(compile_command)
        if not library.exists():
            _build(compile_command, library)
        return ctypes.CDLL(str(library))
    except OSError as error:
        raise KernelError(str(error.__cause__ or error)) from error


def softmax_(
    scores_BNSS: Tensor, scale: float, bias_NSS: Tensor | None, lengths_B: Tensor | None
) -> None:
    """Become softmax(scale scores + bias) over the first `lengths_B` keys (int32, at least 1)."""
    _call("softmax_", scores_BNSS, *scores_BNSS.shape, scale, bias_NSS, lengths_B)


def softmax_backward_(
    gradients_BNSS: Tensor, scale: float, weights_BNSS: Tensor, has_bias: bool
) -> Tensor | None:
    """Turn the gradient of the softmax `weights_BNSS` into that of the scores.

    Returns:
        The gradient of the bias, or None if there is none.
    """
    shape, bias_gradient_NSS = gradients_BNSS.shape, None
    if has_bias:
        bias_gradient_NSS = gradients_BNSS.new_empty(shape[1:], dtype=torch.float32)
    _call("softmax_backward_", gradients_BNSS, *shape, scale, weights_BNSS, bias_gradient_NSS)
    return bias_gradient_NSS


def cross_entropy_(
    logits_MV: Tensor, bias_V: Tensor, labels_M: Tensor, ignored: int
) -> tuple[Tensor, Tensor]:
    """Become the gradient of the summed cross-entropy of logits + bias.

    Returns:
        The losses, 0 where the label is `ignored`, and the gradient of the bias.
    """
    losses_M, parts = bias_V.new_empty(len(labels_M)), torch.get_num_threads()
    gradients_PV = bias_V.new_zeros(parts, len(bias_V))
    sizes, results = logits_MV.shape, (losses_M, gradients_PV)
    _call("cross_entropy_", logits_MV, *sizes, bias_V, labels_M, ignored, *results, parts)
    return losses_M, gradients_PV.sum(0)


def _call(name: str, first: Tensor, *others: Tensor | float | None) -> None:
    assert first.dtype in KERNEL_TYPES
    words: list[ctypes.c_void_p | ctypes.c_float | ctypes.c_int64] = []
    for word in (first, first.dtype == torch.bfloat16, *others):
        if isinstance(word, Tensor):
            assert word.is_contiguous() and word.is_cpu
            words.append(ctypes.c_void_p(word.data_ptr()))
        elif isinstance(word, float):
            words.append(ctypes.c_float(word))
        else:
            words.append(ctypes.c_void_p() if word is None else ctypes.c_int64(word))
    if not getattr(load_cpu_kernels(), name)(*words):
        raise IndexError(f"{name}: a label or a length is out of bounds")


def fused_attention(
    q_BNSH: Tensor,
    k_BNSH: Tensor,
    v_BNSH: Tensor,
    bias_NSS: Tensor | None,
    lengths_B: Tensor | None,
    scale: float,
    dropout: float = 0.0,
) -> Tensor:
    """Return dropout(softmax(scale q k^T + bias)) v.

    The products are torch's. Scores become weights, and gradients of weights those of scores, in
    place. `dropout` draws 16 bits for a weight from torch's generator, where `F.dropout` draws 64.

    Args:
        q_BNSH: queries, fp32 or bf16 like keys and values.
        k_BNSH: keys.
        v_BNSH: values.
        bias_NSS: fp32; its gradient is summed over the batch in fp32.
        lengths_B: number of keys that are not padding (int32, at least 1); None: all.
        scale: of the scores.
        dropout: probability that a weight becomes 0.

    Raises:
        KernelError: the kernels are not available on this machine.
    """
    with torch.autocast("cpu", enabled=False):
        mixed_BNSH: Tensor = _Attention.apply(  # type: ignore[no-untyped-call]
            q_BNSH, k_BNSH, v_BNSH, bias_NSS, lengths_B, scale, dropout
        )
    return mixed_BNSH


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q_BNSH: Tensor,
        k_BNSH: Tensor,
        v_BNSH: Tensor,
        bias_NSS: Tensor | None,
        lengths_B: Tensor | None,
        scale: float,
        dropout: float,
    ) -> Tensor:
        # Two products read each of them; contiguous keys are transposed without a copy.
        heads = [tensor.contiguous() for tensor in (q_BNSH, k_BNSH, v_BNSH)]
        weights_BNSS = heads[0] @ heads[1].transpose(-1, -2)
        bias_NSS = None if bias_NSS is None else bias_NSS.float().contiguous()
        softmax_(weights_BNSS, scale, bias_NSS, lengths_B)
        mixing_BNSS, kept_BNSS = weights_BNSS, None
        if dropout:
            count = weights_BNSS.numel()
            words = torch.empty(-(-count // 4), dtype=torch.int64).random_(-(2**63), None)
            bits_BNSS = words.view(torch.int16)[:count].view_as(weights_BNSS)
            kept_BNSS = bits_BNSS >= round(2**16 * dropout) - 2**15
            kept_BNSS = kept_BNSS.to(weights_BNSS.dtype).div_(1 - dropout)
            mixing_BNSS = weights_BNSS * kept_BNSS
        ctx.save_for_backward(*heads, weights_BNSS, mixing_BNSS, kept_BNSS)
        ctx.scale = scale
        return mixing_BNSS @ heads[2]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        mixed_gradient_BNSH = gradients[0].contiguous()  # two products read it
        q_BNSH, k_BNSH, v_BNSH, weights_BNSS, mixing_BNSS, kept_BNSS = ctx.saved_tensors
        has_bias = ctx.needs_input_grad[3]
        gradient_BNSS = mixed_gradient_BNSH @ v_BNSH.transpose(-1, -2)
        if kept_BNSS is not None:
            gradient_BNSS *= kept_BNSS
        bias_gradient_NSS = softmax_backward_(gradient_BNSS, ctx.scale, weights_BNSS, has_bias)
        return (
            gradient_BNSS @ k_BNSH,
            gradient_BNSS.transpose(-1, -2) @ q_BNSH,
            mixing_BNSS.transpose(-1, -2) @ mixed_gradient_BNSH,
            bias_gradient_NSS,
            *[None] * 3,
        )


def _compile_command() -> list[str]:
    """Return compiler and flags, without the source and the output."""
    capability = torch.backends.cpu.get_cpu_capability()
    flags = VECTOR_FLAGS[capability].split()
    features = CPU_FEATURES.read_text().split() if CPU_FEATURES.is_file() else []
    if capability == "AVX512" and "avx512_bf16" in features:  # an instruction that rounds
        flags.append("-mavx512bf16")
    defines = [f"CPU_CAPABILITY={capability}", f"CPU_CAPABILITY_{capability}"]
    return [
        *(shutil.which(COMPILER) or COMPILER, "-c", "-std=c++20", "-O3", "-fPIC", "-fopenmp", "-w"),
        *flags,
        *(f"-D{define}" for define in defines),
        *(f"-I{folder}" for folder in cpp_extension.include_paths()),
    ]


def _library(compile_command: list[str]) -> Path:
    """Return the place of the compiled library, named after everything that it depends on."""
    text = SOURCE.read_bytes() + HEADER.read_bytes()
    identity = f"{torch.__version__} {compile_command} ".encode() + text
    root = os.environ.get("TORCH_EXTENSIONS_DIR") or cpp_extension.get_default_build_root()
    return Path(root) / f"tupelo_cpu_kernels_{hashlib.sha256(identity).hexdigest()[:16]}.so"


def _build(compile_command: list[str], library: Path) -> None:
    print("compiling kernels for this CPU, once on this machine ...", file=sys.stderr)
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        compiled, linked = Path(folder, "softmax.o"), Path(folder, library.name)
        _run([*compile_command, str(SOURCE), "-o", str(compiled)])
        # Without -fopenmp: the threads are those of the library that torch has loaded.
        torch_libraries = [f"-L{folder}" for folder in cpp_extension.library_paths()]
        command = [compile_command[0], "-shared", str(compiled), *torch_libraries]
        _run([*command, "-ltorch_cpu", "-o", str(linked)])
        linked.replace(library)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.splitlines()
        errors = [line for line in lines if "error" in line] or lines or ["no message"]
        raise KernelError(f"{command[0]} fails: {errors[0][:300]}")
