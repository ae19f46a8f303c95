"""GPUs that the driver lists and torch cannot use: a run would use the CPU, unnoticed."""

import warnings

import torch

from pretrain.config.errors import ConfigError
from pretrain.distributed.gpus import VARIABLE, ask_driver, hides_every_gpu, visible_gpus


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
        version = torch.__version__.partition("+")[0]  # pinned: another one would be replaced
        built = "for CPUs" if torch.version.cuda is None else f"for CUDA {torch.version.cuda}"
        raise ConfigError(
            f"torch {torch.__version__}, built {built}, sees none of {len(gpus)} NVIDIA GPU(s) "
            f"({gpus[0].name}, driver {gpus[0].driver}); update the driver, or install torch "
            f"{version} for the CUDA that nvidia-smi shows (pytorch.org/get-started); or, to use "
            f"the CPU: export {VARIABLE}="
        )


def sees_gpu() -> bool:
    """Return whether torch can use a GPU, without its warning of several lines."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.cuda.is_available()
