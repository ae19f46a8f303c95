"""GPUs that the driver lists and torch cannot use: a run would use the CPU, unnoticed."""

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
    if hides_every_gpu() or sees_gpu():
        return
    gpus = ask_driver()
    if visible_gpus(gpus):
        obstacle = obstacle_to_torch(gpus[0], len(gpus))
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
