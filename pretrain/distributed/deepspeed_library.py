"""The only file that imports DeepSpeed: loading, check of its JSON, communication, FusedAdam."""

import logging
import os
import warnings
from typing import Any

from pydantic import ValidationError

from data_prep.files.quoting import plain
from pretrain.config.errors import ConfigError
from pretrain.config.settings import explain
from pretrain.distributed.unusable_gpus import sees_gpu
from pretrain.profiling.communication import CountedCollectives
from pretrain.profiling.step_timer import Phases


def import_deepspeed() -> Any:
    """Import DeepSpeed without its log output, and without its compiled operation on a CPU."""
    if not sees_gpu():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")  # otherwise it prints its guess
    import deepspeed
    import deepspeed.ops

    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    # DeepSpeed 0.19.8 calls collectives by names that torch 2.13 renames, once a step.
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed")
    # On a CPU it would compile a C++ operation that only inference uses: a minute, a compiler,
    # and a lock file on which later starts hang if the build is killed.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
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
        raise ConfigError(f"the DeepSpeed JSON: {explain(error)}") from None
    # Raised by its own code at a value of an unexpected type.
    except (AssertionError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"DeepSpeed refuses the JSON of engine.ds_config: {type(error).__name__}: "
            f"{plain(str(error))}"
        ) from None


def count_collectives(phases: Phases) -> CountedCollectives:
    """Put the counter between DeepSpeed and its communication backend."""
    import_deepspeed()
    from deepspeed.comm import comm

    # Every collective of DeepSpeed goes through this global.
    comm.cdb = counted = CountedCollectives(comm.cdb, phases)
    return counted


def fused_adam() -> Any:
    """Return the class of DeepSpeed's AdamW for CUDA, which it compiles at its first use."""
    from deepspeed.ops.adam import FusedAdam

    return FusedAdam
