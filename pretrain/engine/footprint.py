"""What a run takes besides time: memory, and room on the disk."""

from typing import Any

from data_prep.masking import predictions_per_row
from pretrain.checkpoint.folders import kept
from pretrain.checkpoint.format import FP32_BYTES
from pretrain.config.ds_config import compute_type, weight_type, zero_stage
from pretrain.config.settings import RunSettings
from pretrain.engine.optimizers import state_numbers
from pretrain.model.cost import parameters_by_group
from pretrain.model.execution_plan import ExecutionPlan
from pretrain.model.objectives.catalog import objective_named


def optimizer_state_bytes(settings: RunSettings, ds_config: dict[str, Any], world_size: int) -> int:
    """Return the bytes of optimizer state per rank: ZeRO 1 to 3 divide it among the ranks."""
    # ZeRO keeps an fp32 partition of its own, also where the weights are fp32 themselves.
    if zero_stage(ds_config) == 0:
        return FP32_BYTES * state_numbers(settings)
    parameters = parameters_by_group(settings.model, settings.objective, settings.electra)["total"]
    return -(-FP32_BYTES * (state_numbers(settings) + parameters) // world_size)


def rank_bytes(settings: RunSettings, ds_config: dict[str, Any], world_size: int) -> int:
    """Return what a rank holds of weights, gradients, their exchange and optimizer state."""
    parameters = parameters_by_group(settings.model, settings.objective, settings.electra)["total"]
    stage, itemsize = zero_stage(ds_config), weight_type(ds_config).itemsize
    # ZeRO-2 divides the gradients among the ranks, ZeRO-3 the weights too.
    weights, gradients = (
        -(-parameters * itemsize // (world_size if stage >= first else 1)) for first in (3, 2)
    )
    # Stage 0 copies the gradients of several ranks in fp32, other stages a bucket of them.
    exchanged = FP32_BYTES * parameters * (world_size > 1)
    if stage > 0:
        bucket = ds_config["zero_optimization"].get("reduce_bucket_size", parameters)
        exchanged = int(bucket) * itemsize
    return weights + gradients + exchanged + optimizer_state_bytes(settings, ds_config, world_size)


def pass_bytes(
    settings: RunSettings, ds_config: dict[str, Any], execution: ExecutionPlan, number: int
) -> int:
    """Estimate what a forward pass of `number` sequences keeps for its backward pass.

    Korthikanti et al. 2022, "Reducing activation recomputation", Eq. 1, in numbers rather than in
    bytes of half precision: of a block, 17 for each number of a state; where scores are written
    out, 2.5 for each score, or 1 without dropout. Of recomputed blocks, the input of each, and one
    block. Besides, the logits of the predictions. It is right within a third.
    """
    length = settings.data.sequence_length
    product, weight = compute_type(ds_config).itemsize, weight_type(ds_config).itemsize
    predictions = predictions_per_row(length, settings.data.masked_probability)
    total = 0.0
    for network in objective_named(settings.objective).networks(settings.model, settings.electra):
        model = network.model
        # 17 widths, where the feed-forward layer has 4.
        block: float = 9 * model.width + 2 * model.feedforward_width
        if execution.attention in ("eager", "fused"):
            block += (2.5 if model.attention_dropout else 1) * model.num_heads * length
        blocks = model.num_layers * block * product
        if execution.recomputes_blocks:
            blocks = model.num_layers * model.width * weight + block * product
        logits = network.predicts_words * predictions * model.vocabulary_size * product
        total += number * (length * blocks + logits)
    return int(total)


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
    return len(kept(written, keep_last=checkpoint.keep_last, pinned=checkpoint.pinned))


def size(num_bytes: float) -> str:
    """Return a number of bytes with a binary unit."""
    for unit, name in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if num_bytes >= unit:
            return f"{num_bytes / unit:.1f} {name}"
    return f"{num_bytes:.0f} bytes"
