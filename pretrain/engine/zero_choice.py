"""The ZeRO stage of `engine.ds_config = "auto"`, and the size of the buckets of gradients."""

import os
from typing import Any

import torch

from pretrain.config.ds_config import computes_in_bf16, zero_stage
from pretrain.config.settings import RunSettings
from pretrain.distributed.ranks import Ranks
from pretrain.engine.footprint import rank_bytes
from pretrain.engine.optimizers import OPTIMIZERS
from pretrain.model.objectives.catalog import build_objective
from pretrain.model.shapes import shapes_only

# The rest is for activations.
SHARE_OF_MEMORY = 0.5

# So many buckets let DeepSpeed reduce one while the backward pass fills the next, where
# `overlap_comm` is on, and each is still large enough for the full bandwidth: 100 MB of BERT-Base.
BUCKETS = 4


def automatic_stage(settings: RunSettings, ranks: Ranks) -> int:
    """Return the ZeRO stage that "auto" takes; the first rank decides for all of them.

    ZeRO-1 exchanges gradients and updated weights, one and a half times the traffic of stage 0 (an
    all-reduce moves twice the gradients, a gather of the weights once more; Rajbhandari et al.
    2019, Sec. 7), and DeepSpeed waits for the device at each of its updates. So it is chosen only
    where it has to save memory, and for fp16, which works from stage 1 on.
    """
    if ranks.device == "cuda" and not has_bf16(ranks):
        return 1
    kind = OPTIMIZERS.get(settings.optimizer.kind)
    if ranks.world_size == 1 or (kind is not None and 1 not in kind.zero_stages):
        return 0
    needed = rank_bytes(settings, {"zero_optimization": {"stage": 0}}, ranks.world_size)
    return int(needed > SHARE_OF_MEMORY * device_bytes(ranks))


def has_bf16(ranks: Ranks) -> bool:
    """Return whether the devices of the ranks compute in bf16."""
    if ranks.gpu is not None:
        return torch.bfloat16 in ranks.gpu.types
    return computes_in_bf16(ranks.device)


def device_bytes(ranks: Ranks) -> int:
    """Return the memory of a rank's device, not only what is free of it.

    That of the smallest GPU that this machine gives to ranks; on a CPU a rank's share of the
    machine. So a dry run, which is one process, sees what a start sees.
    """
    if ranks.gpu is not None:
        return ranks.gpu.memory_bytes
    if ranks.device == "cuda":
        gpus = range(min(ranks.world_size, torch.cuda.device_count()))
        return min((torch.cuda.get_device_properties(gpu).total_memory for gpu in gpus), default=0)
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // ranks.world_size


def with_fitted_buckets(ds_config: dict[str, Any], settings: RunSettings) -> dict[str, Any]:
    """Return the configuration with buckets of gradients for this model, unless it has its own.

    DeepSpeed allocates a bucket whole, from the first gradient of a backward pass on (at stage 3
    for good, twice with `overlap_comm` at stages 1 and 2): with its default of 5e8 numbers, 1.9 GiB
    for any model. No parameter may be larger than a bucket: its gradient would be reduced alone,
    by other code. `allgather_bucket_size` allocates nothing where torch gathers into one tensor.
    """
    if zero_stage(ds_config) == 0:
        return ds_config
    with shapes_only():
        model = build_objective(settings.model, settings.objective, settings.electra)
    sizes = [parameter.numel() for parameter in model.parameters()]
    bucket = max(-(-sum(sizes) // BUCKETS), *sizes)
    zero = {"reduce_bucket_size": bucket, **ds_config["zero_optimization"]}
    return {**ds_config, "zero_optimization": zero}
