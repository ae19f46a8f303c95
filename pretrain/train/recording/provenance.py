"""Records what besides its settings determines a run: code, versions, machine, environment.

Nothing here names the machine or the user: variables come from a literal list.
"""

import contextlib
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

CHECKOUT = Path(__file__).parents[3]

PACKAGES = ("tupelo", "torch", "deepspeed", "numpy", "tokenizers", "h5py", "safetensors", "triton")

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
        "command": sys.argv,
        **code(),
        "versions": versions(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else processor(),
        "threads": torch.get_num_threads(),
        "variables": {name: variables[name] for name in RECORDED_VARIABLES if name in variables},
    }


def versions() -> dict[str, str]:
    """Return the versions of Python, of the packages that compute, and of CUDA where it is used."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    if torch.cuda.is_available():
        found["cuda"] = str(torch.version.cuda)
        found["cudnn"] = str(torch.backends.cudnn.version())  # type: ignore[no-untyped-call]
        nccl = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
        found["nccl"] = ".".join(map(str, nccl))
    return found


def code(checkout: Path = CHECKOUT) -> dict[str, str]:
    """Return the commit of the code, with "-dirty" where tracked files were changed, and which."""
    try:
        # An installed copy can lie in the checkout of something else, whose commit is unrelated.
        _git(checkout, "ls-files", "--error-unmatch", str(Path(__file__).relative_to(CHECKOUT)))
        commit = _git(checkout, "describe", "--always", "--dirty")
        changes = _git(checkout, "diff", "--stat", "--no-color", "--no-ext-diff", "HEAD")
    except FileNotFoundError:
        return {"commit": "unknown: git is not installed"}
    except subprocess.TimeoutExpired:
        return {"commit": "unknown: git does not answer"}
    except subprocess.CalledProcessError as error:
        return {"commit": f"unknown: {(error.stderr.splitlines() or ['git fails'])[0]}"}
    return {"commit": commit.strip(), "uncommitted": changes.rstrip()}


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


def _git(checkout: Path, *words: str) -> str:
    """Return what git prints, without its lock: a run must not let a commit of the user fail."""
    command = ("git", "--no-optional-locks", "-c", "core.quotePath=false", "-C", str(checkout))
    return subprocess.run(
        [*command, *words],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=30.0,  # seconds
        check=True,
    ).stdout
