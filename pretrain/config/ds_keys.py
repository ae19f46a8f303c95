"""The keys of the DeepSpeed JSON that a run may use.

DeepSpeed ignores unknown keys: with a misspelt `zero_optimization` it would train at stage 0
without a message. Some known keys change what is computed, and some where the state is kept that a
checkpoint saves.
"""

from typing import Any

from data_prep.files.quoting import plain
from pretrain.config.errors import ConfigError, nearest

# Filled in or read by the trainer, or for logging only.
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

# Of blocks whose unknown keys are ignored; DeepSpeed refuses them in the others itself.
KEYS_OF_BLOCKS = {
    "torch_autocast": ("enabled", "dtype", "lower_precision_safe_modules"),
    "optimizer": ("type", "params"),
    "timers": ("throughput",),
    "flops_profiler": (
        "enabled",
        "recompute_fwd_factor",
        "profile_step",
        "module_depth",
        "top_modules",
        "detailed",
        "output_file",
    ),
}

# Keys that DeepSpeed has or had, refused here, and why.
NOT_HERE = {
    "activation_checkpointing": "this model does not read it; set engine.recompute_blocks=true",
    "aio": "nothing is offloaded here",
    "amp": 'DeepSpeed 0.19 no longer has it; use a "fp16" or "bf16" block',
    "checkpoint": "checkpoints are this trainer's own; see the settings under checkpoint",
    "compile": "each block is compiled separately; see engine.compile_blocks",
    "compression_training": "DeepSpeed 0.19 no longer has it",
    "curriculum_learning": "DeepSpeed 0.19 no longer has it",
    "data_efficiency": "it would choose other samples than the recipe",
    "data_types": "it changes where gradients and their sums are kept, which checkpoints rely on",
    "elasticity": "DeepSpeed 0.19 no longer has it; use --resume --elastic on other GPUs",
    "gradient_allreduce_op": "gradients are means over the ranks",
    "gradient_predivide_factor": "ZeRO 2 and 3 do not have it",
    "managed_gradient_accumulation": "each micro-batch would become an optimizer step",
    "prescale_gradients": "ZeRO 2 and 3 do not have it",
    "progressive_layer_drop": "give the recipe layer_drop.schedule=progressive, its theta as "
    "layer_drop.theta_bar and layer_drop.gamma; layer_drop.compat=deepspeed repeats bing_bert",
    "scheduler": "the learning rate is the recipe's; see learning_rate.schedule",
    "sparse_attention": "DeepSpeed 0.19 no longer has it",
    "sparse_gradients": "DeepSpeed 0.19 no longer has it",
}

# Switches inside the blocks, likewise.
SWITCHES_NOT_HERE = {
    ("fp16", "fp16_master_weights_and_grads"): "checkpoints hold fp32",
    ("bf16", "bf16_master_weights_and_grads"): "checkpoints hold fp32",
    ("bf16", "bf16_optimizer_states"): "checkpoints hold fp32",
    (
        "zero_optimization",
        "round_robin_gradients",
    ): "checkpoints would name parts of weights wrongly",
    ("zero_optimization", "cpu_offload"): "an encoder of this size fits on the device",
    ("zero_optimization", "cpu_offload_params"): "an encoder of this size fits on the device",
    ("zero_optimization", "zenflow"): "it offloads, and an encoder of this size fits on the device",
    ("zero_optimization", "zero_quantized_weights"): "its effect on the loss is not tested",
    ("zero_optimization", "zero_quantized_nontrainable_weights"): "all weights are trained",
    ("zero_optimization", "zero_quantized_gradients"): "its effect on the loss is not tested",
}

# Switches that must stay on, as they are by default.
SWITCHES_NEEDED = {
    ("bf16", "check_grad_overflow"): "an update that is not finite would be made",
    ("zero_optimization", "compute_grad_norm"): "gradients that are not finite would go unseen",
}

# Numbers of ranks among which stage 3 divides the weights; above 1, not among all.
PARTIAL_DIVISIONS = ("zero_hpz_partition_size", "mics_shard_size")

PRECISIONS = ("fp16", "bf16", "torch_autocast")


def check_names_in_blocks(config: dict[str, Any]) -> None:
    """Refuse unknown keys in the blocks where they would be ignored.

    Raises:
        ConfigError: the DeepSpeed JSON, as it was read, holds such a key.
    """
    for block, known in KEYS_OF_BLOCKS.items():
        for name in config.get(block, {}):
            if name not in known:
                raise ConfigError(
                    f"the DeepSpeed JSON has {plain(name)!r} in {block}, an unknown key"
                    f"{nearest(name, known)}; remove it"
                )


def check_names(config: dict[str, Any]) -> None:
    """Refuse keys that DeepSpeed ignores, and those that change what is trained or saved.

    Raises:
        ConfigError: the DeepSpeed JSON holds such a key, or two precisions.
    """
    for name in config:
        if name in NOT_HERE:
            raise ConfigError(
                f"{name} in the DeepSpeed JSON is not supported: {NOT_HERE[name]}; remove it"
            )
        if name not in PASSED_ON:
            raise ConfigError(
                f"the DeepSpeed JSON has {name!r}, an unknown key"
                f"{nearest(name, PASSED_ON)}; remove it"
            )
    for (block, name), reason in SWITCHES_NOT_HERE.items():
        if config.get(block, {}).get(name):
            raise ConfigError(
                f"{block}.{name} in the DeepSpeed JSON is not supported: {reason}; remove it"
            )
    for (block, name), reason in SWITCHES_NEEDED.items():
        if not config.get(block, {}).get(name, True):
            raise ConfigError(
                f"{block}.{name}=false in the DeepSpeed JSON is not supported: {reason}; remove it"
            )
    for name in PARTIAL_DIVISIONS:
        value = config.get("zero_optimization", {}).get(name, 0)
        if value not in (-1, 0, 1):  # these mean all ranks
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
