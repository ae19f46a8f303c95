"""The keys of the DeepSpeed JSON that a run may use, and values that are refused.

DeepSpeed ignores unknown keys: with a misspelt `zero_optimization` it would train at stage 0
without a message. Some known keys change what is computed, and some where the state is kept that a
checkpoint saves.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, create_model

from data_prep.command_line import explained, setting_fields
from data_prep.files.quoting import plain, quoted
from pretrain.config.errors import ConfigError
from pretrain.config.settings import flat


class JsonBlock(BaseModel):
    """A block whose unknown keys DeepSpeed would ignore."""

    model_config = ConfigDict(extra="forbid", strict=True)


class CheckedBlock(BaseModel):
    """A block whose unknown keys DeepSpeed refuses itself."""

    model_config = ConfigDict(extra="allow", strict=True)


SWITCH, ANYTHING = (bool, False), (Any, None)
BLOCKS: dict[str, tuple[type[BaseModel], dict[str, Any]]] = {
    "fp16": (CheckedBlock, {"enabled": SWITCH}),
    "bf16": (CheckedBlock, {"enabled": SWITCH}),
    "zero_optimization": (CheckedBlock, {"stage": (int, Field(0, ge=0, le=3))}),
    "torch_autocast": (
        JsonBlock,
        {"enabled": SWITCH, "dtype": ANYTHING, "lower_precision_safe_modules": ANYTHING},
    ),
    "timers": (JsonBlock, {"throughput": (dict[str, Any], {})}),
}
FROM_RECIPE = (
    *("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"),
    "gradient_clipping",
)
# Read by the trainer, or for logging only.
OTHERS = (
    *(*FROM_RECIPE, "zero_allow_untested_optimizer", "communication_data_type"),
    *("steps_per_print", "log_level", "dump_state", "wall_clock_breakdown", "memory_breakdown"),
    *("comms_logger", "flops_profiler", "tensorboard", "csv_monitor", "wandb", "comet"),
)
FIELDS: dict[str, Any] = dict.fromkeys(OTHERS, ANYTHING)
for _name, (_base, _fields) in BLOCKS.items():
    _block = create_model(_name, __base__=_base, **_fields)
    FIELDS[_name] = (_block, _block())
DeepSpeedJson = create_model("DeepSpeedJson", __base__=JsonBlock, **FIELDS)

FITS = "an encoder of this size fits on the device"
DIVIDED = "checkpoints rely on weights that are divided among all ranks"

# Keys that DeepSpeed has, and why they are refused; those in a block where they are on. Keys of no
# list are refused too.
REFUSED = {
    "activation_checkpointing": "this model does not read it; set engine.recompute_blocks=true",
    "checkpoint": "checkpoints are this trainer's own; see the settings under checkpoint",
    "compile": "each block is compiled separately; see engine.compile_blocks",
    "optimizer": "the optimizer is the recipe's; see the settings under optimizer",
    "progressive_layer_drop": "give the recipe layer_drop.schedule=progressive, its theta as "
    "layer_drop.theta_bar and layer_drop.gamma; layer_drop.compat=deepspeed repeats bing_bert",
    "scheduler": "the learning rate is the recipe's; see learning_rate.schedule",
    "fp16.fp16_master_weights_and_grads": "checkpoints hold fp32",
    "bf16.bf16_master_weights_and_grads": "checkpoints hold fp32",
    "bf16.bf16_optimizer_states": "checkpoints hold fp32",
    "bf16.check_grad_overflow": "an update that is not finite would be made",
    "zero_optimization.round_robin_gradients": "checkpoints would name parts of weights wrongly",
    "zero_optimization.cpu_offload": FITS,
    "zero_optimization.cpu_offload_param": FITS,
    "zero_optimization.offload_optimizer.device": FITS,
    "zero_optimization.offload_param.device": FITS,
    "zero_optimization.zenflow": f"it offloads, and {FITS}",
    "zero_optimization.zero_quantized_weights": "its effect on the loss is not tested",
    "zero_optimization.zero_quantized_nontrainable_weights": "all weights are trained",
    "zero_optimization.zero_quantized_gradients": "its effect on the loss is not tested",
    "zero_optimization.compute_grad_norm": "gradients that are not finite would go unseen",
    "zero_optimization.zero_hpz_partition_size": DIVIDED,
    "zero_optimization.mics_shard_size": DIVIDED,
}

# Values that are as if the key were not there, where these are not False and what counts as it.
HARMLESS = {
    "bf16.check_grad_overflow": (True,),
    "zero_optimization.compute_grad_norm": (True,),
    "zero_optimization.offload_optimizer.device": ("none",),
    "zero_optimization.offload_param.device": ("none",),
    "zero_optimization.zero_hpz_partition_size": (0, 1),  # all ranks
    "zero_optimization.mics_shard_size": (),
    "zero_optimization.zenflow": (),
}


def check_keys(config: dict[str, Any], place: str = "the DeepSpeed JSON") -> None:
    """Refuse keys that DeepSpeed ignores, and those that change what is trained or saved.

    Raises:
        ConfigError: it holds such a key, or a value of a wrong type.
    """
    for path, reason in REFUSED.items():
        value: Any = config
        for key in path.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        harmless = value in HARMLESS[path] if path in HARMLESS else "." in path and not value
        if value is not None and not harmless:
            raise ConfigError(
                f"{place}: {path}={quoted(value)} is not supported: {reason}; remove it"
            )
    autos = [name for name, value in flat(config).items() if value == "auto"]
    if unknown := [plain(name) for name in autos if name not in FROM_RECIPE]:
        raise ConfigError(
            f"{place}: {', '.join(unknown)}: auto is for transformers' Trainer; delete these lines"
        )
    known = [*DeepSpeedJson.model_fields, *setting_fields(DeepSpeedJson)]
    with explained(f"{place}: ", known):
        DeepSpeedJson.model_validate(config)
