"""GPUs that the driver lists and torch cannot use: a run would use the CPU, unnoticed."""

import re
import warnings

import torch

from pretrain.config.errors import ConfigError
from pretrain.distributed.gpus import (
    VARIABLE,
    DriverGpu,
    ask_driver,
    hides_every_gpu,
    visible_gpus,
)


def refuse_unusable_gpus() -> None:
    """Refuse to train on the CPU of a machine with GPUs, unless CUDA_VISIBLE_DEVICES hides them.

    An nvidia-smi that fails is no reason: a machine may have a driver and no GPU.

    Raises:
        ConfigError: torch cannot use the GPUs of this machine.
    """
    if hides_every_gpu():
        return
    if sees_gpu():
        obstacle = obstacle_to_architecture()
    else:
        gpus = ask_driver()
        obstacle = obstacle_to_torch(gpus[0], len(gpus)) if visible_gpus(gpus) else None
    if obstacle is not None:
        raise ConfigError(f"{obstacle}; or, to use the CPU: export {VARIABLE}=")


def sees_gpu() -> bool:
    """Return whether torch can use a GPU, without its warning of several lines."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.cuda.is_available()


def obstacle_to_torch(gpu: DriverGpu, count: int) -> str:
    """Return why a torch that sees no GPU does not see the `count` GPUs of the driver."""
    cuda = torch.version.cuda
    gpus = f"{count} NVIDIA GPU(s) ({gpu.name}, driver {gpu.driver})"
    if cuda is None:
        return (
            f"{gpus}, but torch {torch.__version__} is a build for CPUs and will not use them; "
            f"python -m pip install --force-reinstall torch=={torch.__version__.partition('+')[0]}"
        )
    return (
        f"{gpus}, but torch, built for CUDA {cuda}, sees none; the driver may be older than that "
        "CUDA: update it, or install a torch that is built for "
        "the CUDA version that nvidia-smi shows (https://pytorch.org/get-started)"
    )


def obstacle_to_architecture() -> str | None:
    """Return that torch has no kernels for a GPU that it sees, or None."""
    if torch.version.hip is not None:  # AMD's architectures are named otherwise
        return None
    architectures = torch.cuda.get_arch_list()  # such as sm_80, sm_90a, compute_120
    for number in range(torch.cuda.device_count()):
        major, minor = torch.cuda.get_device_capability(number)
        if not any(_runs_on(each, major, minor) for each in architectures):
            return (
                f"torch {torch.__version__} has no kernels for {torch.cuda.get_device_name(number)}"
                f" (compute capability {major}.{minor}; it has {', '.join(architectures)}); "
                "install a torch that is built for it, often for another CUDA version "
                "(https://pytorch.org/get-started)"
            )
    return None


def _runs_on(architecture: str, major: int, minor: int) -> bool:
    """Return whether a GPU runs code of an architecture: compiled for its major version, or PTX."""
    kind, _, digits = architecture.partition("_")
    its_major, its_minor = divmod(int(re.sub(r"\D", "", digits)), 10)
    if kind == "compute":  # PTX, which the driver compiles
        return (its_major, its_minor) <= (major, minor)
    return its_major == major and its_minor <= minor
