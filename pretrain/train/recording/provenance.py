"""Records what besides its settings determines a run: code, versions, machine, environment.

Nothing here names the machine or the user: variables come from a literal list, and what looks like
a token or a password is removed from the command and from the diff (data_prep/files/redaction.py).
"""

import hashlib
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from data_prep.files.redaction import command_without_secrets, without_secrets

CHECKOUT = Path(__file__).parents[3]
OWN_FILE = str(Path(__file__).relative_to(CHECKOUT))
CODE_FOLDER = "code"  # in the run folder
LARGEST_DIFF_BYTES = 1_000_000
GIT_SECONDS = 30.0
ONLY_OWNER = 0o600  # reads the diff: it may hold what nobody else was meant to see

PACKAGES = ("tupelo", "torch", "deepspeed", "numpy", "tokenizers", "h5py", "safetensors", "triton")

# New files of these kinds are code; other untracked files of a checkout are not.
SOURCE_ENDINGS = (".py", ".sh", ".toml", ".j2", ".cpp", ".cu", ".h")

# They change the numbers or the speed of a run, and hold no secret.
RECORDED_VARIABLES = (
    *("ATEN_CPU_CAPABILITY", "CUBLAS_WORKSPACE_CONFIG", "CUDA_DEVICE_MAX_CONNECTIONS"),
    *("CUDA_LAUNCH_BLOCKING", "DS_SKIP_CUDA_CHECK", "GLOO_SOCKET_IFNAME", "GOMP_CPU_AFFINITY"),
    *("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"),
    *("KMP_AFFINITY", "KMP_BLOCKTIME", "LD_PRELOAD", "MALLOC_ARENA_MAX", "MALLOC_CONF"),
    *("MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_TRIM_THRESHOLD_", "MKL_CBWR"),
    *("MKL_DYNAMIC", "MKL_ENABLE_INSTRUCTIONS", "MKL_NUM_THREADS", "NCCL_ALGO"),
    *("NCCL_IB_DISABLE", "NCCL_P2P_DISABLE", "NCCL_PROTO", "NCCL_SHM_DISABLE"),
    *("NCCL_SOCKET_IFNAME", "NVIDIA_TF32_OVERRIDE", "OMP_NUM_THREADS", "OMP_PLACES"),
    *("OMP_PROC_BIND", "ONEDNN_DEFAULT_FPMATH_MODE", "ONEDNN_MAX_CPU_ISA"),
    *("OPENBLAS_NUM_THREADS", "PYTHONHASHSEED", "PYTHONOPTIMIZE", "PYTORCH_ALLOC_CONF"),
    *("PYTORCH_CUDA_ALLOC_CONF", "TORCHDYNAMO_DISABLE", "TORCHINDUCTOR_MAX_AUTOTUNE"),
    *("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "TORCH_COMPILE_DISABLE", "TRITON_F32_DEFAULT"),
    "TRITON_INTERPRET",
)


def environment(variables: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return what besides the settings can change a result or a timing."""
    return {
        "command": command_without_secrets(sys.argv),
        "commit": commit(),
        "versions": versions(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else processor(),
        "devices_here": torch.cuda.device_count() or 1,
        "threads": torch.get_num_threads(),
        "cores": len(os.sched_getaffinity(0)),
        "variables": {
            name: without_secrets(variables[name])
            for name in RECORDED_VARIABLES
            if name in variables
        },
    }


def versions() -> dict[str, str]:
    """Return the versions of Python, of the packages that compute, and of CUDA where it is used."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    if torch.cuda.is_available():
        found["cuda"] = str(torch.version.cuda)
        found["cudnn"] = str(torch.backends.cudnn.version())  # type: ignore[no-untyped-call]
        nccl = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
        found["nccl"] = ".".join(map(str, nccl))
        driver = Path("/proc/driver/nvidia/version")
        number = re.search(r"Module\s+([\d.]+)", driver.read_text()) if driver.is_file() else None
        if number is not None:
            found["driver"] = number[1]
    return found


def commit(checkout: Path = CHECKOUT) -> str:
    """Return the commit of the code, with "-dirty" where files that git tracks were changed."""
    try:
        # An installed copy can lie in the checkout of something else, whose commit is unrelated.
        tracked = _git(checkout, "ls-files", "--error-unmatch", OWN_FILE)
        found = _git(checkout, "describe", "--always", "--dirty")
    except FileNotFoundError:
        return "unknown: git is not installed"
    except subprocess.TimeoutExpired:
        return "unknown: git does not answer"
    if "dubious ownership" in tracked.stderr:
        return f"unknown: git needs git config --global --add safe.directory {checkout}"
    if tracked.returncode or found.returncode:
        return "unknown: not a git checkout"
    return found.stdout.strip()


def keep_uncommitted_code(folder: Path, checkout: Path = CHECKOUT) -> dict[str, Any]:
    """Write what differs from the commit into the run folder, once for equal content.

    Returns:
        `diff`: the file, relative to the run folder, which `git apply` turns the commit into the
        code with; None without changes, where they are too large, or the disk is full.
        `diff_sha256`: of it, also then. `left_out`: new source files that are too large for it.
    """
    nothing: dict[str, Any] = {"diff": None, "diff_sha256": None, "left_out": []}
    if commit(checkout).startswith("unknown"):
        return nothing
    try:
        text, left_out = uncommitted_code(checkout)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return nothing  # a file was removed since, or git does not end
    content = text.encode()
    if not content and not left_out:
        return nothing
    digest = hashlib.sha256(content).hexdigest()
    name = f"{CODE_FOLDER}/{digest[:12]}.diff"
    is_kept = 0 < len(content) <= LARGEST_DIFF_BYTES and _written(folder / name, content)
    return {"diff": name if is_kept else None, "diff_sha256": digest, "left_out": left_out}


def _written(file: Path, content: bytes) -> bool:
    """Return whether a file could be written; a disk that is full must not stop a resume."""
    partial = file.with_suffix(".partial")
    try:
        file.parent.mkdir(exist_ok=True)
        partial.touch(mode=ONLY_OWNER)
        partial.write_bytes(content)
        partial.replace(file)
    except OSError:
        partial.unlink(missing_ok=True)
        return False
    return True


def uncommitted_code(checkout: Path) -> tuple[str, list[str]]:
    """Return all changes since the commit, new source files too, and the files left out."""
    text = _diff(checkout, "--relative", "HEAD", "--", ".")
    names = _git(checkout, "ls-files", "--others", "--exclude-standard", "-z").stdout.split("\0")
    left_out = []
    for name in sorted(name for name in names if name.endswith(SOURCE_ENDINGS)):
        room = LARGEST_DIFF_BYTES - len(text.encode())
        # The size is checked before the file is read.
        is_small = (checkout / name).stat().st_size <= room
        new = _diff(checkout, "--no-index", "--", "/dev/null", name) if is_small else ""
        if is_small and len(new.encode()) <= room:
            text += new
        else:
            left_out.append(name)
    if len(text) > LARGEST_DIFF_BYTES:  # is not kept
        return text, left_out
    return without_secrets(text), left_out


def num_hosts(world_size: int, variables: Mapping[str, str] = os.environ) -> int:
    """Return the number of machines, from the variables that torchrun and deepspeed set."""
    here = variables.get("LOCAL_WORLD_SIZE") or variables.get("LOCAL_SIZE") or str(world_size)
    return -(-world_size // max(1, int(here)))


def processor() -> str:
    """Return the name of the processor and the number of its cores."""
    cpu_info = Path("/proc/cpuinfo")
    lines = cpu_info.read_text().splitlines() if cpu_info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]} x {len(names)}" if names else platform.processor() or "CPU"


def _diff(checkout: Path, *words: str) -> str:
    """Return changes as text, whatever the user has set git to show instead."""
    return _git(checkout, "diff", "--no-color", "--no-ext-diff", "--no-textconv", *words).stdout


def _git(checkout: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run git without taking its lock: a commit of the user's must not fail because of a run."""
    command = ("git", "--no-optional-locks", "-c", "core.quotePath=false", "-C", str(checkout))
    return subprocess.run(
        [*command, *words],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=GIT_SECONDS,
        check=False,
    )
