"""Which names of the DeepSpeed JSON a run may use.

DeepSpeed ignores a name that it does not know, so that a misspelt `zero_optimization` would train
at stage 0 without a word. Of those that it knows, some change what is computed, and some change
where it keeps the state that a checkpoint has to find.
"""

from typing import Any

from pretrain.config.errors import ConfigError, nearest

# What the trainer fills in or reads, and what only tells more of a run.
PASSED_ON = (
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "gradient_clipping",
    "zero_optimization",
    "zero_allow_untested_optimizer",
    "fp16",
    "bf16",
    "torch_autocast",
    "optimizer",
    "communication_data_type",
    "steps_per_print",
    "log_level",
    "dump_state",
    "wall_clock_breakdown",
    "memory_breakdown",
    "comms_logger",
    "flops_profiler",
    "timers",
    "tensorboard",
    "csv_monitor",
    "wandb",
    "comet",
)

# What DeepSpeed knows and a run must not have, and why.
NOT_HERE = {
    "activation_checkpointing": "this model does not see it; set engine.recompute_blocks=true",
    "aio": "nothing is offloaded here",
    "checkpoint": "checkpoints are this trainer's own; see the settings under checkpoint",
    "compile": "blocks are compiled one by one; see engine.compile_blocks",
    "data_efficiency": "it would choose other samples than the recipe",
    "data_types": "it changes where gradients and their sums are kept, which checkpoints rely on",
    "gradient_allreduce_op": "gradients are means over the ranks",
    "gradient_predivide_factor": "ZeRO 2 and 3 do not have it",
    "managed_gradient_accumulation": "each micro-batch would become an optimizer step",
    "prescale_gradients": "ZeRO 2 and 3 do not have it",
}

# Switches inside the blocks, likewise.
SWITCHES_NOT_HERE = {
    ("fp16", "fp16_master_weights_and_grads"): "checkpoints hold fp32",
    ("bf16", "bf16_master_weights_and_grads"): "checkpoints hold fp32",
    ("bf16", "bf16_optimizer_states"): "checkpoints hold fp32",
    ("zero_optimization", "cpu_offload"): "an encoder of this size fits on the device",
    ("zero_optimization", "cpu_offload_params"): "an encoder of this size fits on the device",
    ("zero_optimization", "zenflow"): "it offloads, and an encoder of this size fits on the device",
    ("zero_optimization", "zero_quantized_weights"): "nobody has tested what it does to the loss",
    ("zero_optimization", "zero_quantized_nontrainable_weights"): "all weights are trained",
    ("zero_optimization", "zero_quantized_gradients"): "nobody has tested what it does to the loss",
}

# Numbers of ranks among which stage 3 divides the weights: above 1, not among all of them.
PARTIAL_DIVISIONS = ("zero_hpz_partition_size", "mics_shard_size")

PRECISIONS = ("fp16", "bf16", "torch_autocast")


def check_names(config: dict[str, Any]) -> None:
    """Refuse what DeepSpeed would ignore, and what would train or save something else.

    Raises:
        ConfigError: the DeepSpeed JSON holds such a name, or two precisions.
    """
    for name in config:
        if name in NOT_HERE:
            raise ConfigError(
                f"{name} in the DeepSpeed JSON is not supported: {NOT_HERE[name]}; remove it"
            )
        if name not in PASSED_ON:
            raise ConfigError(
                f"the DeepSpeed JSON has {name!r}, which is not known here"
                f"{nearest(name, PASSED_ON)}; remove it"
            )
    for (block, name), reason in SWITCHES_NOT_HERE.items():
        if config.get(block, {}).get(name):
            raise ConfigError(
                f"{block}.{name} in the DeepSpeed JSON is not supported: {reason}; remove it"
            )
    for name in PARTIAL_DIVISIONS:
        value = config.get("zero_optimization", {}).get(name, 0)
        if value not in (-1, 0, 1):  # what stands for all of them
            raise ConfigError(
                f"zero_optimization.{name}={value} in the DeepSpeed JSON is not supported: "
                "checkpoints rely on weights that are divided among all ranks; remove it"
            )
    chosen = [name for name in PRECISIONS if config.get(name, {}).get("enabled", False)]
    if len(chosen) > 1:
        raise ConfigError(
            f"the DeepSpeed JSON enables {' and '.join(chosen)}; a run has one precision: enable "
            "one of them"
        )
