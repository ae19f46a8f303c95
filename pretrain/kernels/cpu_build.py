"""Compiles and loads our C++ kernels for CPUs: cpu/*.cpp.

torch computes what stands between two matrix products one operation after the other, each with its
own passes over memory; these kernels do it in one. They are compiled once on a machine, by the
user's C++ compiler, and kept where torch keeps such things (TORCH_EXTENSIONS_DIR). There is no
lock: whoever finds nothing compiles for itself, and renames.

Afterwards there are these operators under torch.ops.tupelo, for fp32 and bf16. Those whose names
end with _ overwrite their first tensor.

    softmax_(scores_BNSS, scale, bias_NSS, lengths_B)
        Become softmax(scale scores + bias) over the first `lengths_B` keys (int32, at least 1).
    softmax_backward_(gradients_BNSS, scale, weights_BNSS, has_bias)
        Become the gradient of the scores from that of the softmax `weights_BNSS`; return the
        gradient of the bias, without any element where there is none.
    cross_entropy_(logits_MV, bias_V, labels_M, ignored)
        Become the gradient of the summed cross-entropy of logits + bias; return the losses (0
        where the label is `ignored`) and the gradient of the bias.
    gelu_(products_RF, bias_F)
        Become the derivative of GELU at products + bias; return GELU there.
    gelu_backward(gradients_RF, slopes_RF)
        Return the gradient of the products and, summed over the rows, that of the bias.
    add_and_normalize(x_RD, branch_RD, branch_bias_D, scale, weight_D, bias_D, epsilon,
                      computed, is_wide, is_narrow)
        Return x + scale (branch + branch_bias); its LayerNorm in the type of `x` (if `is_wide`) and
        in the type `computed` (if `is_narrow`), which is that of the branch; and mean and one over
        the standard deviation of each row. None for what is not asked for: the branch, its bias,
        and the norm may be left out.
    add_and_normalize_backward(sum_RD, statistics, weight_D, sum_gradient_RD, wide_gradient_RD,
                               narrow_gradient_RD, scale, computed, has_branch)
        Return the gradients of x, branch, branch_bias, weight and bias.
    split_heads(projected_BSC, bias_C, heads)
        Return queries, keys and values, 3BNSH, of C = 3NH columns.
    merge_heads(queries_BNSH, keys_BNSH, values_BNSH)
        Return the gradients of projected_BSC and, summed over all positions, of the bias.

Biases, weights of norms, their gradients, statistics and losses are fp32.

Where `multiplies(torch.bfloat16)`, there are these too, for bf16 and an even H:

    attend_heads(queries_BNSH, keys_BNSH, values_BNSH, scale, bias_NSS, lengths_B)
        Return the mixed values, BSNH, and the weights, for the way back.
    attend_heads_backward(mixed_gradients_BSNH, queries_BNSH, keys_BNSH, values_BNSH, weights,
                          scale, has_bias)
        Return the gradients of queries, keys, values and bias; None where there is none.
    weight_gradient(gradients_RC, inputs_RI)
        Return gradients^T inputs, CI, in fp32.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path

import torch
from torch.utils import cpp_extension

FOLDER = Path(__file__).parent / "cpu"
SOURCES = tuple(
    FOLDER / f"{name}.cpp" for name in ("attention", "products", "softmax", "layers", "norm")
)
HEADERS = tuple(FOLDER / f"{name}.h" for name in ("tiles", "vectors"))
COMPILER = "g++"  # whose OpenMP is that of torch
VECTOR_FLAGS = {
    "AVX2": "-mavx2 -mfma -mf16c",
    "AVX512": "-mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c",
}
CPU_FEATURES = Path("/proc/cpuinfo")
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


@cache
def load_cpu_kernels() -> None:
    """Make `torch.ops.tupelo` known to this process; compile it if nobody has yet.

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
        torch.ops.load_library(str(library))  # type: ignore[no-untyped-call]
    except OSError as error:
        raise KernelError(str(error.__cause__ or error)) from error


def multiplies(dtype: torch.dtype) -> bool:
    """Return whether there are kernels that multiply this type; needs `load_cpu_kernels`.

    They are where the CPU has instructions for it, torch offers kernels oneDNN's products, and
    oneDNN may use those instructions (ONEDNN_MAX_CPU_ISA).
    """
    return dtype is torch.bfloat16 and _products_work()


@cache
def _products_work() -> bool:
    if not hasattr(torch.ops.tupelo, "weight_gradient"):
        return False
    try:
        torch.ops.tupelo.weight_gradient(*torch.ones(2, 2, 2, dtype=torch.bfloat16))
    except RuntimeError:
        return False
    return True


def _compile_command() -> list[str]:
    """Return compiler and flags, but for the source and the output."""
    capability = torch.backends.cpu.get_cpu_capability()
    flags = VECTOR_FLAGS[capability].split()
    if capability == "AVX512" and _multiplies_bf16():
        flags.append("-mavx512bf16")
    defines = [f"CPU_CAPABILITY={capability}", f"CPU_CAPABILITY_{capability}"]
    if not torch.compiled_with_cxx11_abi():
        defines.append("_GLIBCXX_USE_CXX11_ABI=0")
    return [
        *(shutil.which(COMPILER) or COMPILER, "-c", "-std=c++20", "-O3", "-fPIC", "-fopenmp", "-w"),
        *flags,
        *(f"-D{define}" for define in defines),
        *(f"-I{folder}" for folder in cpp_extension.include_paths()),
    ]


def _multiplies_bf16() -> bool:
    try:
        return "avx512_bf16" in CPU_FEATURES.read_text().split()
    except OSError:
        return False


def _library(compile_command: list[str]) -> Path:
    """Return the place of what the command leads to; named after all that it depends on."""
    texts = [file.read_bytes() for file in (*SOURCES, *HEADERS)]
    identity = f"{torch.__version__} {compile_command} ".encode() + b"".join(texts)
    root = os.environ.get("TORCH_EXTENSIONS_DIR") or cpp_extension.get_default_build_root()
    return Path(root) / f"tupelo_cpu_kernels_{hashlib.sha256(identity).hexdigest()[:16]}.so"


def _build(compile_command: list[str], library: Path) -> None:
    print("compiling kernels for this CPU, once on this machine ...", file=sys.stderr)
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        compiled = [Path(folder, f"{source.stem}.o") for source in SOURCES]
        with ThreadPoolExecutor() as pool:
            for _ in pool.map(partial(_compile, compile_command), SOURCES, compiled):
                pass
        linked = Path(folder, library.name)
        # Without -fopenmp: the threads are those of the library that torch has loaded.
        torch_libraries = [f"-L{folder}" for folder in cpp_extension.library_paths()]
        command = [compile_command[0], "-shared", *map(str, compiled), *torch_libraries]
        _run([*command, "-ltorch_cpu", "-lc10", "-o", str(linked)])
        linked.replace(library)


def _compile(command: list[str], source: Path, target: Path) -> None:
    _run([*command, str(source), "-o", str(target)])


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
