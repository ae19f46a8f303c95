"""The device of a run: without this check a run falls back to the CPU without a message."""

import subprocess

import torch

from pretrain.doctor.check import Accelerators, CheckContext, CheckResult, Gpu
from pretrain.engine.footprint import size
from pretrain.train.provenance import processor

NVIDIA_SMI_SECONDS = 30


def find_accelerators() -> Accelerators:
    """Ask torch and nvidia-smi, which need not agree."""
    gpus = []
    for number in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(number)
        gpus.append(Gpu(torch.cuda.get_device_name(number), total, free))
    driver, error = _ask_nvidia_smi()
    return Accelerators(tuple(gpus), torch.version.cuda, driver, error)


def accelerator(context: CheckContext) -> CheckResult:
    """Report the device of a run, and why a GPU of the machine is not used."""
    found = context.accelerators
    if found.gpus:
        gpus = "; ".join(f"{gpu.name}, {size(gpu.memory_bytes)}" for gpu in found.gpus)
        return CheckResult("ok", f"{gpus}; torch is built for CUDA {found.torch_cuda}")
    if found.driver_error:
        return CheckResult(
            "problem",
            f"nvidia-smi fails ({found.driver_error}): the driver does not work",
            "restart the machine, or install the driver again; in docker: --gpus all",
        )
    if not found.driver:
        return CheckResult("ok", f"no NVIDIA GPU: {processor()}")
    gpus = f"{len(found.driver)} NVIDIA GPU(s) ({found.driver[0]})"
    if found.torch_cuda is None:
        return CheckResult(
            "problem",
            f"{gpus}, but torch {torch.__version__} is a build for CPUs and will not use them",
            f"python -m pip install --force-reinstall torch=={torch.__version__.partition('+')[0]}",
        )
    hidden = context.environment.get("CUDA_VISIBLE_DEVICES")
    if hidden is not None:
        return CheckResult(
            "warning",
            f"{gpus}, hidden by CUDA_VISIBLE_DEVICES={hidden!r}: runs use the CPU",
            "unset CUDA_VISIBLE_DEVICES",
        )
    return CheckResult(
        "problem",
        f"{gpus}, but torch, built for CUDA {found.torch_cuda}, sees none",
        "the driver may be older than that CUDA: update it, or install a torch that is built for "
        "the CUDA version that nvidia-smi shows (https://pytorch.org/get-started)",
    )


def _ask_nvidia_smi() -> tuple[tuple[str, ...] | None, str]:
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(
            query, capture_output=True, text=True, timeout=NVIDIA_SMI_SECONDS, check=False
        )
    except FileNotFoundError:
        return None, ""
    except subprocess.TimeoutExpired:
        return (), f"no answer within {NVIDIA_SMI_SECONDS} s"
    lines = answer.stdout.strip().splitlines()
    if answer.returncode:
        return (), (lines or [f"exit status {answer.returncode}"])[0]
    return tuple(lines), ""
