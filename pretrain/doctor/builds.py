"""What is compiled at the first start: the compilers, DeepSpeed's operations, Triton's kernels.

On a CPU that is our own kernels, and nothing of DeepSpeed's. On a GPU DeepSpeed's fused Adam is
compiled by nvcc unless that was done when DeepSpeed was installed, and blocks and attention by
Triton.
"""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from pretrain.compare.tables import amount
from pretrain.distributed.deepspeed_library import installed_operations
from pretrain.doctor.finding import CheckResult, Surroundings, nearest_folder
from pretrain.kernels.cpu_kernels import COMPILER

Operations = Callable[[], dict[str, bool]]
FUSED_ADAM = "fused_adam"
WITHOUT = "or do without: --optimizer.kind torch"


def compilers(
    surroundings: Surroundings, *, compiled: Operations = installed_operations
) -> CheckResult:
    """Tell whether what must be compiled can be compiled."""
    path = surroundings.search_path
    compiler = next(
        (name for name in ("c++", "g++", "clang++") if shutil.which(name, path=path)), ""
    )
    has_ninja = shutil.which("ninja", path=path) is not None
    there = ", ".join(filter(None, [compiler, "ninja" * has_ninja])) or "no compiler"
    cuda = surroundings.accelerators.torch_cuda
    if surroundings.accelerators.device == "cpu" or cuda is None:
        return _kernels_for_cpus(path, there)
    if compiled().get(FUSED_ADAM):
        return CheckResult("ok", f"{there}; {FUSED_ADAM} was compiled when DeepSpeed was installed")
    if not compiler:
        return CheckResult(
            "problem",
            f"no C++ compiler, and DeepSpeed's {FUSED_ADAM} is compiled at the first start",
            f"apt install g++; {WITHOUT}",
        )
    if not has_ninja:
        return CheckResult(
            "problem", f"{there}, but no ninja", f"python -m pip install ninja; {WITHOUT}"
        )
    return _nvcc(surroundings, cuda, there)


def _kernels_for_cpus(search_path: str, there: str) -> CheckResult:
    if shutil.which(COMPILER, path=search_path) is None:
        return CheckResult(
            "warning",
            f"{there}, but no {COMPILER}: runs do without our kernels for CPUs, and are slower",
            f"apt install {COMPILER}",
        )
    return CheckResult(
        "ok", f"{there}; the first start on a CPU compiles our kernels with {COMPILER}"
    )


def operations(
    surroundings: Surroundings, *, compiled: Operations = installed_operations
) -> CheckResult:
    """Tell which operations of DeepSpeed a run uses and whether they are compiled already."""
    installed = [name for name, is_there in compiled().items() if is_there]
    there = f"compiled with DeepSpeed: {', '.join(installed) or 'none'}"
    if surroundings.accelerators.device == "cpu":
        return CheckResult("ok", f"{there}; on a CPU none is used")
    if FUSED_ADAM in installed:
        return CheckResult("ok", there)
    folder = extensions_folder(surroundings)
    if any(folder.glob(f"**/{FUSED_ADAM}/*.so")):
        return CheckResult(
            "ok", f"{there}; {FUSED_ADAM} was compiled at an earlier start, in {folder}"
        )
    return CheckResult("ok", f"{there}; the first start compiles {FUSED_ADAM}, half a minute")


def build_locks(surroundings: Surroundings) -> CheckResult:
    """Find the lock files of builds that were killed: every later start waits for them for ever."""
    folder = extensions_folder(surroundings)
    locks = [lock for lock in sorted(folder.glob("**/lock")) if lock.is_file()]
    if not locks:
        return CheckResult("ok", f"none in {folder}")
    held = {lock: _holders(lock, surroundings.root) for lock in locks}
    described = "; ".join(
        f"{lock}, {amount(max(0.0, time.time() - lock.stat().st_mtime), 'training_seconds')} old, "
        + (f"held by process {', '.join(map(str, by))}" if by else "held by no process here")
        for lock, by in held.items()
    )
    stale = [str(lock) for lock, by in held.items() if not by]
    if not stale:
        return CheckResult("ok", f"a build is under way: {described}")
    fix = f"rm {shlex.join(stale)}   (unless another machine is building in this folder)"
    return CheckResult("problem", f"a start would wait for ever: {described}", fix)


def triton_cache(surroundings: Surroundings) -> CheckResult:
    """Tell whether Triton is there, and can keep what it compiles."""
    on_gpu = surroundings.accelerators.device == "cuda"
    if importlib.util.find_spec("triton") is None:
        return CheckResult(
            "warning" if on_gpu else "ok",
            "not installed" + ("" if on_gpu else "; on a CPU it is not used"),
            "python -m pip install triton; without it blocks are not compiled and attention is "
            "slower"
            if on_gpu
            else "",
        )
    environment = surroundings.environment
    home = Path(environment.get("TRITON_HOME", surroundings.home))
    cache = Path(environment.get("TRITON_CACHE_DIR", home / ".triton" / "cache"))
    if os.access(nearest_folder(cache), os.W_OK):
        return CheckResult("ok", f"its kernels are kept in {cache}")
    return CheckResult(
        "problem" if on_gpu else "warning",
        f"{cache} cannot be written",
        "export TRITON_CACHE_DIR=FOLDER, a folder that can be written",
    )


def extensions_folder(surroundings: Surroundings) -> Path:
    """Return where torch compiles C++ and CUDA operations."""
    environment = surroundings.environment
    caches = Path(environment.get("XDG_CACHE_HOME", surroundings.home / ".cache"))
    return Path(environment.get("TORCH_EXTENSIONS_DIR", caches / "torch_extensions"))


def _nvcc(surroundings: Surroundings, cuda: str, there: str) -> CheckResult:
    environment = surroundings.environment
    home = environment.get("CUDA_HOME") or environment.get("CUDA_PATH")
    nvcc = f"{home}/bin/nvcc" if home else shutil.which("nvcc", path=surroundings.search_path)
    nvcc = nvcc or "/usr/local/cuda/bin/nvcc"
    if not os.access(nvcc, os.X_OK):
        return CheckResult(
            "problem",
            f"{there}, but no nvcc ({nvcc}), and {FUSED_ADAM} is compiled at the first start",
            f"install the CUDA toolkit {cuda} and export CUDA_HOME; {WITHOUT}",
        )
    answer = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False)
    release = re.search(r"release (\d+)\.(\d+)", answer.stdout)
    if release is None or release[1] != cuda.partition(".")[0]:
        found = release[0] if release else "of no version that it tells"
        return CheckResult(
            "problem",
            f"nvcc {found} ({nvcc}), but torch is built for CUDA {cuda}: DeepSpeed refuses to "
            "compile with it",
            f"export CUDA_HOME=FOLDER of a toolkit {cuda}; {WITHOUT}",
        )
    return CheckResult("ok", f"{there}, nvcc {release[0]}, for torch's CUDA {cuda}")


def _holders(lock: Path, root: Path) -> list[int]:
    """Return the processes that have the lock open, or compile in its folder.

    torch makes the file, keeps it open while it builds, and removes it; who finds it waits.
    Processes of other users cannot be looked into, and those on other machines not seen.
    """
    holders = []
    for process in (root / "proc").glob("[0-9]*"):
        if _works_at(process, lock):
            holders.append(int(process.name))
    return sorted(holders)


def _works_at(process: Path, lock: Path) -> bool:
    lock = lock.resolve()
    try:
        if (process / "cwd").readlink() == lock.parent:
            return True
        return any(handle.readlink() == lock for handle in (process / "fd").iterdir())
    except OSError:  # it has ended meanwhile, or is another user's
        return False
