"""What a run takes besides time: memory, and room on the disk."""

from typing import Any

from data_prep.masking import predictions_per_sequence
from pretrain.checkpoint.format import FP32_BYTES
from pretrain.config.ds_config import compute_type, weight_type, zero_stage
from pretrain.config.settings import RunSettings
from pretrain.engine.optimizers import optimizer_named
from pretrain.model.cost import parameters_by_group
from pretrain.model.execution_plan import ExecutionPlan
from pretrain.model.objectives.catalog import objective_of
from pretrain.model.transformers_encoder import measured


def rank_bytes(settings: RunSettings, ds_config: dict[str, Any], world_size: int) -> int:
    """Return what a rank holds of weights, gradients, their exchange and optimizer state."""
    parameters = parameters_by_group(settings.model, settings.objective, settings.electra)["total"]
    state = parameters * len(optimizer_named(settings.optimizer.kind).state)
    stage, itemsize = zero_stage(ds_config), weight_type(ds_config).itemsize
    # ZeRO-2 divides the gradients among the ranks, ZeRO-3 the weights too.
    weights, gradients = (
        -(-parameters * itemsize // (world_size if stage >= first else 1)) for first in (3, 2)
    )
    if stage == 0:
        # The gradients of several ranks are copied in fp32.
        exchanged = FP32_BYTES * parameters * (world_size > 1)
        return weights + gradients + exchanged + FP32_BYTES * state
    bucket = ds_config["zero_optimization"].get("reduce_bucket_size", parameters)
    # ZeRO keeps an fp32 partition of its own, also where the weights are fp32 themselves.
    divided = -(-FP32_BYTES * (state + parameters) // world_size)
    return weights + gradients + int(bucket) * itemsize + divided


def needed_bytes(
    settings: RunSettings,
    ds_config: dict[str, Any],
    world_size: int,
    execution: ExecutionPlan,
    number: int,
) -> int:
    """Estimate the memory of a rank: `rank_bytes`, and what a pass of `number` sequences keeps.

    Korthikanti et al. 2022, "Reducing activation recomputation", Eq. 1, in numbers rather than in
    bytes of half precision: of a block, 17 for each number of a state; where scores are written
    out, 2.5 for each score, or 1 without dropout. Of recomputed blocks, the input of each, and one
    block. Besides, the logits of the predictions, or of all tokens where a head of transformers
    is not known. It is right within a third.
    """
    length = settings.data.sequence_length
    product, weight = compute_type(ds_config).itemsize, weight_type(ds_config).itemsize
    predictions = predictions_per_sequence(length, settings.data.masked_probability)
    total = 0.0
    kind = objective_of(settings.model, settings.objective)
    for network in kind.networks(settings.model, settings.electra):
        model = network.model
        # 17 widths, where the feed-forward layer has 4.
        block: float = 9 * model.width + 2 * model.feedforward_width
        if execution.attention in ("eager", "fused"):
            block += (2.5 if model.attention_dropout else 1) * model.num_heads * length
        blocks = model.num_layers * block * product
        if execution.recomputes_blocks:
            blocks = model.num_layers * model.width * weight + block * product
        words = predictions if network.predicts_words else 0
        if model.transformers is not None and not measured(model, length).predicts_words:
            words = length
        total += number * (length * blocks + words * model.vocabulary_size * product)
    return rank_bytes(settings, ds_config, world_size) + int(total)


def checkpoint_bytes(settings: RunSettings) -> int:
    """Return the approximate size of a checkpoint, of all ranks together."""
    parameters = parameters_by_group(settings.model, settings.objective, settings.electra)["total"]
    return FP32_BYTES * parameters * (1 + len(optimizer_named(settings.optimizer.kind).state))


def size(num_bytes: float) -> str:
    """Return a number of bytes with a binary unit."""
    for unit, name in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if num_bytes >= unit:
            return f"{num_bytes / unit:.1f} {name}"
    return f"{num_bytes:.0f} bytes"
