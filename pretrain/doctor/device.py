"""The device of a run, and why a GPU of the machine is not used."""

import torch

from pretrain.distributed.gpus import VARIABLE, ask_driver, visible_gpus
from pretrain.distributed.unusable_gpus import obstacle_to_architecture, obstacle_to_torch, sees_gpu
from pretrain.doctor.check import Accelerators, CheckContext, CheckResult, Gpu
from pretrain.engine.footprint import size
from pretrain.train.recording.provenance import processor


def find_accelerators() -> Accelerators:
    """Ask torch and nvidia-smi, which need not agree."""
    count = torch.cuda.device_count() if sees_gpu() else 0
    return Accelerators(tuple(map(_gpu, range(count))), torch.version.cuda, ask_driver())


def accelerator(context: CheckContext) -> CheckResult:
    """Report the device of a run, and why a GPU of the machine is not used."""
    found = context.accelerators
    if found.gpus:
        busy = [f"GPU {n} ({gpu.error})" for n, gpu in enumerate(found.gpus) if gpu.error]
        if busy:
            return CheckResult(
                "problem",
                f"{', '.join(busy)} cannot be used",
                "end the process that has it (nvidia-smi shows it; in the compute mode "
                f"exclusive-process there can be one only), or leave it out with {VARIABLE}",
            )
        obstacle = obstacle_to_architecture()
        if obstacle is not None:
            return CheckResult("problem", *obstacle)
        gpus = "; ".join(f"{gpu.name}, {size(gpu.memory_bytes)}" for gpu in found.gpus)
        return CheckResult("ok", f"{gpus}; torch is built for CUDA {found.torch_cuda}")
    if found.driver.error:
        return CheckResult(
            "problem",
            f"nvidia-smi fails ({found.driver.error}): the driver does not work",
            "restart the machine, or install the driver again; in docker: --gpus all",
        )
    obstacle = obstacle_to_torch(found.driver)
    if obstacle is None:
        return CheckResult("ok", f"no NVIDIA GPU: {processor()}")
    if not visible_gpus(found.driver, context.environment):
        return CheckResult(
            "warning",
            f"{len(found.driver.gpus)} NVIDIA GPU(s), hidden by "
            f"{VARIABLE}={context.environment[VARIABLE]!r}: runs use the CPU",
            f"unset {VARIABLE}",
        )
    return CheckResult("problem", *obstacle)


def _gpu(number: int) -> Gpu:
    """Describe a GPU; another process may have it for itself alone."""
    try:
        free, total = torch.cuda.mem_get_info(number)
    except RuntimeError as error:
        properties = torch.cuda.get_device_properties(number)
        return Gpu(properties.name, properties.total_memory, 0, str(error).splitlines()[0])
    return Gpu(torch.cuda.get_device_name(number), total, free)
