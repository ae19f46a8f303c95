"""What a run takes besides time: memory but for activations, and room on the disk."""

from typing import Any

from pretrain.checkpoint.folders import kept
from pretrain.checkpoint.format import FP32_BYTES
from pretrain.config.ds_config import weight_type, zero_stage
from pretrain.config.settings import RunSettings
from pretrain.engine.optimizers import state_numbers
from pretrain.model.cost import parameters_by_group

# Of DeepSpeed, in numbers: at stage 0 always, from stage 1 on where the JSON has no other.
LARGEST_BUCKET = 500_000_000


def optimizer_state_bytes(settings: RunSettings, ds_config: dict[str, Any], world_size: int) -> int:
    """Return the bytes of optimizer state per rank: ZeRO 1 to 3 divide it among the ranks."""
    # ZeRO keeps an fp32 partition of its own, also where the weights are fp32 themselves.
    if zero_stage(ds_config) == 0:
        return FP32_BYTES * state_numbers(settings)
    parameters = parameters_by_group(settings.model, settings.objective, settings.electra)["total"]
    return -(-FP32_BYTES * (state_numbers(settings) + parameters) // world_size)


def rank_bytes(settings: RunSettings, ds_config: dict[str, Any], world_size: int) -> int:
    """Return what a rank holds of weights, gradients, their buckets and optimizer state."""
    parameters = parameters_by_group(settings.model, settings.objective, settings.electra)["total"]
    one = parameters * weight_type(ds_config).itemsize
    # ZeRO-2 divides the gradients among the ranks, ZeRO-3 the weights too.
    stage = zero_stage(ds_config)
    weights, gradients = (-(-one // (world_size if stage >= first else 1)) for first in (3, 2))
    state = optimizer_state_bytes(settings, ds_config, world_size)
    return weights + gradients + state + bucket_bytes(settings, ds_config, world_size)


def bucket_bytes(settings: RunSettings, ds_config: dict[str, Any], world_size: int) -> int:
    """Return the bytes of the buckets through which DeepSpeed exchanges gradients, per rank."""
    zero = ds_config.get("zero_optimization", {})
    if zero_stage(ds_config) == 0:  # the engine exchanges nothing for one rank
        parameters = parameters_by_group(settings.model, settings.objective, settings.electra)[
            "total"
        ]
        return FP32_BYTES * min(parameters, LARGEST_BUCKET) if world_size > 1 else 0
    if not zero.get("contiguous_gradients", True):
        return 0
    buffers = 2 if zero.get("overlap_comm") and zero_stage(ds_config) < 3 else 1
    numbers = int(zero.get("reduce_bucket_size", LARGEST_BUCKET))
    return buffers * numbers * weight_type(ds_config).itemsize


def checkpoint_bytes(settings: RunSettings) -> int:
    """Return the approximate size of a checkpoint, of all ranks together."""
    parameters = parameters_by_group(settings.model, settings.objective, settings.electra)["total"]
    return FP32_BYTES * (parameters + state_numbers(settings))


def num_kept_checkpoints(settings: RunSettings) -> int | None:
    """Return how many checkpoints a run leaves; None: its hours do not say after which steps."""
    if settings.hours is not None:
        return None
    checkpoint, last = settings.checkpoint, settings.steps
    written = {*range(checkpoint.every_steps, last + 1, checkpoint.every_steps), last}
    written |= {step for step in checkpoint.pinned if step <= last}
    return len(
        kept(
            written,
            keep_last=checkpoint.keep_last,
            keep_every=checkpoint.keep_every,
            pinned=checkpoint.pinned,
        )
    )


def size(num_bytes: float) -> str:
    """Return a number of bytes with a binary unit."""
    for unit, name in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if num_bytes >= unit:
            return f"{num_bytes / unit:.1f} {name}"
    return f"{num_bytes:.0f} bytes"
