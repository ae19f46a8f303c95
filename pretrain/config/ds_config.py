"""The DeepSpeed JSON: where it is found, what the recipe fills in, what is refused.

The JSON sets how a run is executed (ZeRO stage, precision), the recipe what is computed. Batch and
clipping are "auto" in the JSON and come from the recipe; a JSON with another value is refused.
"""

import os
from pathlib import Path
from typing import Any, Literal

import torch

from data_prep.files.quoting import quoted
from pretrain.config.batch import micro_batches_per_step, micro_sequences
from pretrain.config.ds_keys import check_keys
from pretrain.config.errors import ConfigError, lookup, nearest
from pretrain.config.json_objects import read_json_object
from pretrain.config.settings import RunSettings

DS_CONFIGS = Path(__file__).parents[2] / "ds_configs"
AUTO = "auto"

# As DeepSpeed spells them, with or without "torch." in front.
AUTOCAST_TYPES = {
    "bfloat16": torch.bfloat16,
    "bf16": torch.bfloat16,
    "float16": torch.float16,
    "fp16": torch.float16,
    "half": torch.float16,
}

PRECISIONS = ("fp16", "bf16", "torch_autocast")  # blocks with a switch "enabled"


def read_ds_config(
    name: str,
    device: Literal["cpu", "cuda"],
    *,
    automatic_stage: int = 0,
    has_bf16: bool | None = None,
) -> dict[str, Any]:
    """Read the JSON that `engine.ds_config` names.

    Args:
        name: a path, the name of a file in ds_configs/, or "auto": bf16 where the device
            computes in it, else fp32 on a CPU and fp16, always at stage 1, on CUDA.
        device: where the run will be executed.
        automatic_stage: ZeRO stage of "auto", see engine/zero_choice.py.
        has_bf16: whether the device computes in bf16; None: this machine's device is asked.

    Raises:
        ConfigError: no such file, or it holds what is refused; see `check_keys`.
    """
    if name == AUTO:
        in_bf16 = computes_in_bf16(device) if has_bf16 is None else has_bf16
        other = "zero1_fp16" if device == "cuda" else f"zero{automatic_stage}_fp32"
        name = f"zero{automatic_stage}_bf16_autocast" if in_bf16 else other
    path = _ds_config_path(name)
    config = read_json_object(path)
    zero = config.get("zero_optimization")
    if isinstance(zero, dict):  # without what transformers' Trainer would fill in
        config["zero_optimization"] = {
            key: value for key, value in zero.items() if key == "stage" or value != AUTO
        }
    check_keys(config, str(path))
    return config


def computes_in_bf16(device: Literal["cpu", "cuda"]) -> bool:
    """Return whether the device multiplies in bf16; emulated, bf16 is slower than fp32."""
    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    cpu_info = Path("/proc/cpuinfo")  # avx512_bf16, amx_bf16 (x86) or bf16 (Arm)
    return cpu_info.is_file() and "bf16" in cpu_info.read_text()


def fill_ds_config(
    config: dict[str, Any], settings: RunSettings, *, world_size: int
) -> dict[str, Any]:
    """Return the configuration for DeepSpeed, checked, with every "auto" replaced.

    Raises:
        ConfigError: it contradicts the recipe, the batch does not divide, or the combination is
            known not to work.
    """
    check_keys(config)
    _check_supported(config)
    drop, overlaps = settings.layer_drop, config.get("zero_optimization", {}).get("overlap_comm")
    varies = drop.schedule != "none" and drop.draws != 1
    # The exchange begins before it is known which blocks ran in a step.
    if world_size > 1 and overlaps and zero_stage(config) == 1 and varies:
        raise ConfigError(
            "zero_optimization.overlap_comm at stage 1 does not work with layer drop: DeepSpeed "
            "0.19 exchanges only gradients of blocks that run in the last micro-batch of a step; "
            "remove it, use stage 2, or --layer_drop.draw_per step"
        )
    from_recipe = {
        "train_batch_size": settings.batch.global_sequences,
        "train_micro_batch_size_per_gpu": micro_sequences(settings, world_size),
        "gradient_accumulation_steps": micro_batches_per_step(settings, world_size),
        # Always written: without it DeepSpeed clips at 1.0.
        "gradient_clipping": settings.optimizer.max_gradient_norm or 0.0,
    }
    for key, ours in from_recipe.items():
        if config.get(key, AUTO) not in (AUTO, ours):
            raise ConfigError(
                f"the DeepSpeed JSON says {key}={quoted(config[key])}, the recipe {ours}; remove it"
            )
    filled = config | from_recipe
    filled.setdefault("steps_per_print", 10**9)  # the progress bar is ours
    # On by default, and it waits for the device twice in every micro-batch.
    filled["timers"] = {"throughput": {"enabled": False}, **config.get("timers", {})}
    return filled


def _check_supported(config: dict[str, Any]) -> None:
    """Refuse what DeepSpeed would import or computes wrongly."""
    # DeepSpeed imports the modules of these names, which executes them.
    modules = config.get("torch_autocast", {}).get("lower_precision_safe_modules") or []
    listed = modules if isinstance(modules, list) else [modules]
    if strange := [name for name in listed if not str(name).startswith("torch.nn.")]:
        raise ConfigError(
            "torch_autocast.lower_precision_safe_modules in the DeepSpeed JSON names "
            f"{quoted(strange[0])}; name modules of torch.nn, or remove it"
        )
    chosen = [name for name in PRECISIONS if config.get(name, {}).get("enabled", False)]
    if len(chosen) > 1:
        raise ConfigError(
            f"the DeepSpeed JSON enables {' and '.join(chosen)}; a run has one precision: enable "
            "one of them"
        )
    if weight_type(config) != torch.float32 and zero_stage(config) == 0:
        raise ConfigError(
            "half precision at ZeRO stage 0 is wrong in DeepSpeed 0.19 (fp16 gradients are never "
            "scaled, bf16 makes a step too many); use stage 1"
        )
    if autocast_type(config) == torch.float16:
        raise ConfigError(
            "torch_autocast.dtype=float16 is wrong in DeepSpeed 0.19 (at ZeRO stage 1 to 3 "
            "gradients are clipped before they are unscaled, at stage 0 overflows are not "
            "reported); use a fp16 block instead, as zero1_fp16 does"
        )


def zero_stage(config: dict[str, Any]) -> Any:
    """Return the ZeRO stage of a configuration: an int, once `read_ds_config` has checked it."""
    return config.get("zero_optimization", {}).get("stage", 0)


def compute_type(config: dict[str, Any]) -> torch.dtype:
    """Return the type in which matrix products are computed; raises as `autocast_type` does."""
    return autocast_type(config) or weight_type(config)


def weight_type(config: dict[str, Any]) -> torch.dtype:
    """Return the type of the weights with which the model computes, and of their gradients."""
    for block, dtype in (("fp16", torch.float16), ("bf16", torch.bfloat16)):
        if config.get(block, {}).get("enabled", False):
            return dtype
    return torch.float32


def autocast_type(config: dict[str, Any]) -> torch.dtype | None:
    """Return the type of products where weights stay fp32 under autocast; None: it is off.

    Raises:
        ConfigError: `torch_autocast.dtype` is missing, or neither bfloat16 nor float16.
    """
    autocast = config.get("torch_autocast", {})
    if not autocast.get("enabled", False):
        return None
    name = str(autocast.get("dtype")).removeprefix("torch.")
    return lookup(AUTOCAST_TYPES, name, setting="torch_autocast.dtype")


def _ds_config_path(name: str) -> Path:
    for path in (Path(name), DS_CONFIGS / name, DS_CONFIGS / f"{name}.json"):
        if os.path.isfile(path):  # unlike pathlib, returns False for a name that is too long
            return path
    known = sorted(file.stem for file in DS_CONFIGS.glob("*.json"))
    raise ConfigError(
        f"engine.ds_config={quoted(name)} is neither a file nor in ds_configs/"
        f"{nearest(name, known)}; there are {', '.join(known)}"
    )
