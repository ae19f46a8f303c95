"""The only file that imports DeepSpeed: loading, check of its JSON, FusedAdam."""

import contextlib
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from data_prep.files.quoting import plain
from pretrain.config.errors import ConfigError
from pretrain.distributed.unusable_gpus import sees_gpu


def import_deepspeed() -> Any:
    """Import DeepSpeed without its log output, and without compiling anything."""
    if not sees_gpu():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")  # otherwise it prints its guess
    # It would set 1: torch then counts the GPUs of the driver, also those that it cannot use.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "0")
    import deepspeed
    import deepspeed.ops

    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    # DeepSpeed 0.19.8 calls collectives by names that torch 2.13 renames, once a step.
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed")
    # The current device is the one that `start_ranks` has chosen.
    warnings.filterwarnings("ignore", r"barrier\(\): using the device under current context")
    # `init_distributed` asks here whether to compile a C++ operation for CPUs that only inference
    # uses: a minute, a compiler, and a lock file on which later starts hang if the build is killed.
    # Reading DeepSpeed's own table would start compilers to probe every operation, and print a
    # warning for each that needs nvcc.
    deepspeed.ops.__compatible_ops__ = {"deepspeed_shm_comm": False}
    return deepspeed


def check_ds_config(ds_config: dict[str, Any]) -> None:
    """Check that DeepSpeed understands a configuration, before anything is built.

    Raises:
        ConfigError: it does not; with the complaint of DeepSpeed.
    """
    import_deepspeed()
    from deepspeed.runtime.config import DeepSpeedConfig

    # Left out: DeepSpeed divides it by the ranks that have started, not by those of the run.
    checked = {key: value for key, value in ds_config.items() if key != "train_batch_size"}
    try:
        DeepSpeedConfig(checked)
    except ValidationError as error:
        first = error.errors()[0]  # the title names the block
        place = ".".join(map(str, (error.title, *first["loc"])))
        raise ConfigError(f"the DeepSpeed JSON: {plain(place)}: {plain(first['msg'])}") from None
    except Exception as error:  # of its own code, at a value of an unexpected type
        raise ConfigError(
            f"DeepSpeed refuses the JSON of engine.ds_config: {type(error).__name__}: "
            f"{plain(str(error))}"
        ) from None


def fused_adam() -> Any:
    """Return the class of DeepSpeed's AdamW for CUDA, and compile what it calls."""
    from deepspeed.ops.adam import FusedAdam
    from deepspeed.ops.op_builder import FusedAdamBuilder

    with with_cuda_of_pip():
        FusedAdamBuilder().load()
    return FusedAdam


@contextlib.contextmanager
def with_cuda_of_pip() -> Iterator[None]:
    """Let compilers find what nvcc may come without: headers and libcudart of pip's packages."""
    places = getattr(find_spec("nvidia"), "submodule_search_locations", None) or ()
    folders = [folder for place in places for folder in Path(place).iterdir()]
    libraries = [one for folder in folders for one in folder.glob("lib/libcudart.so.*")]
    before = dict(os.environ)
    with tempfile.TemporaryDirectory() as links:
        for library in libraries[:1]:
            Path(links, "libcudart.so").symlink_to(library)  # the name by which it is linked
        includes = [str(folder / "include") for folder in folders]
        own = [str(Path(sys.executable).parent)]  # ninja, where the environment is not active
        added_to = {"CPLUS_INCLUDE_PATH": includes, "LIBRARY_PATH": [links], "PATH": own}
        for name, added in added_to.items():
            os.environ[name] = os.pathsep.join([*filter(None, [before.get(name)]), *added])
        # DeepSpeed cannot read an architecture such as "10.0a"; without the list it asks the GPU.
        os.environ.pop("TORCH_CUDA_ARCH_LIST", None)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)
