"""What a run would be computed on, and in which precision."""

import subprocess

import torch

from pretrain.config.ds_config import computes_in_bf16, default_ds_config
from pretrain.doctor.finding import Accelerators, CheckResult, Gpu, Surroundings, size
from pretrain.engine.execution import AMPERE
from pretrain.train.provenance import processor


def find_accelerators() -> Accelerators:
    """Ask torch and nvidia-smi, which need not agree."""
    gpus = []
    for number in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(number)
        free, total = torch.cuda.mem_get_info(number)
        gpus.append(Gpu(properties.name, total, free, (properties.major, properties.minor)))
    driver, complaint = _ask_nvidia_smi()
    architectures = tuple(torch.cuda.get_arch_list()) if gpus else ()
    return Accelerators(tuple(gpus), torch.version.cuda, architectures, driver, complaint)


def accelerator(surroundings: Surroundings) -> CheckResult:
    """Tell what a run would be computed on, and whether a GPU is left unused."""
    found = surroundings.accelerators
    if found.gpus:
        return _visible_gpus(found)
    if found.driver_complaint:
        return CheckResult(
            "problem",
            f"nvidia-smi fails ({found.driver_complaint}), so there is a driver that does not work",
            "restart the machine, or install the driver again; in docker: --gpus all",
        )
    if not found.driver:
        note = f", though torch is built for CUDA {found.torch_cuda}" if found.torch_cuda else ""
        return CheckResult("ok", f"no NVIDIA GPU: {processor()}{note}")
    gpus = f"{len(found.driver)} NVIDIA GPU(s) ({found.driver[0]})"
    if found.torch_cuda is None:
        return CheckResult(
            "problem",
            f"{gpus}, but torch {torch.__version__} is a build for CPUs and will not use them",
            f"python -m pip install --force-reinstall torch=={torch.__version__.partition('+')[0]}",
        )
    hidden = surroundings.environment.get("CUDA_VISIBLE_DEVICES")
    if hidden is not None:
        return CheckResult(
            "warning",
            f"{gpus}, of which CUDA_VISIBLE_DEVICES={hidden!r} leaves none: runs are on the CPU",
            "unset CUDA_VISIBLE_DEVICES",
        )
    return CheckResult(
        "problem",
        f"{gpus}, but torch, built for CUDA {found.torch_cuda}, sees none",
        "the driver may be older than that CUDA: update it, or install a torch that is built for "
        "the CUDA version that nvidia-smi shows (https://pytorch.org/get-started)",
    )


def precision(surroundings: Surroundings) -> CheckResult:
    """Tell which precisions the device has, and which one "auto" would choose."""
    device = surroundings.accelerators.device
    chosen = default_ds_config(device, surroundings.ranks)
    has_bf16 = "bf16 in hardware" if computes_in_bf16(device) else "no bf16 in hardware"
    has_fp16 = "fp16" if device == "cuda" else "no fp16 (that needs a GPU)"
    return CheckResult(
        "ok",
        f"{has_bf16}, {has_fp16}; engine.ds_config auto is {chosen} on {surroundings.ranks} "
        "rank(s)",
    )


def _visible_gpus(found: Accelerators) -> CheckResult:
    described = "; ".join(
        f"{gpu.name}, {size(gpu.memory_bytes)}, compute capability "
        f"{gpu.capability[0]}.{gpu.capability[1]}"
        for gpu in found.gpus
    )
    described += f"; torch is built for CUDA {found.torch_cuda}; driver: {found.driver or 'hidden'}"
    for number, gpu in enumerate(found.gpus):
        if not _has_kernels_for(gpu.capability, found.architectures):
            return CheckResult(
                "problem",
                f"{described}; torch has no kernels for GPU {number}, only for "
                f"{', '.join(found.architectures)}",
                "install a torch that is built for it (https://pytorch.org/get-started)",
            )
        if gpu.free_bytes < gpu.memory_bytes / 2:
            return CheckResult(
                "warning",
                f"{described}; of GPU {number} only {size(gpu.free_bytes)} are free",
                "another process holds the rest: nvidia-smi shows which",
            )
    if min(gpu.capability for gpu in found.gpus) < AMPERE:
        return CheckResult(
            "warning",
            f"{described}; below capability 8.0 there is no bf16 and no attention kernel of ours",
            "runs work in fp16 with torch's attention; nothing to fix",
        )
    return CheckResult("ok", described)


def _has_kernels_for(capability: tuple[int, int], architectures: tuple[str, ...]) -> bool:
    """Return whether torch has machine code of this family, or code to be compiled for it."""
    for name in architectures:
        kind, _, digits = name.partition("_")
        digits = digits.rstrip("abcdef")
        major, minor = int(digits[:-1]), int(digits[-1])
        is_family = major == capability[0] and minor <= capability[1]
        if is_family or (kind == "compute" and (major, minor) <= capability):
            return True
    return False


def _ask_nvidia_smi() -> tuple[tuple[str, ...] | None, str]:
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
    except FileNotFoundError:
        return None, ""
    except subprocess.TimeoutExpired:
        return (), "no answer within 30 s"
    lines = answer.stdout.strip().splitlines()
    if answer.returncode:
        return (), (lines or [f"exit status {answer.returncode}"])[0]
    return tuple(lines), ""
