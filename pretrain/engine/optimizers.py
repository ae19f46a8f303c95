"""The optimizers: how each is built, which state it keeps, where it works.

Adding one is a class and a line of OPTIMIZERS. Its state tensors have the shape of the parameter,
are fp32, and lie in `optimizer.state[parameter]` by name; checkpoints store them by these names.
From stage 1 on, ZeRO gives it flat parts of several weights: one whose update needs whole matrices
or their norms (as Muon's and LAMB's) names stage 0 alone.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import import_module
from typing import Any, Literal

import torch
from torch import nn

from data_prep.files.quoting import plain
from pretrain.config.ds_config import zero_stage
from pretrain.config.errors import ConfigError, lookup
from pretrain.config.settings import OptimizerSettings
from pretrain.distributed.deepspeed_library import fused_adam
from pretrain.engine.bias_correction import without_bias_correction
from pretrain.engine.parameter_groups import parameter_groups

Device = Literal["cpu", "cuda"]
MOMENTS = ("exp_avg", "exp_avg_sq")  # as torch, apex and DeepSpeed name them


class OptimizerKind(ABC):
    """One implementation of an optimizer; by default it keeps AdamW's two moments."""

    state: tuple[str, ...] = MOMENTS  # names of the state tensors of each parameter
    zero_stages: tuple[int, ...] = (0, 1, 2, 3)
    zero_obstacle = ""  # why it does not work at the other stages
    is_adamw = False  # whose bias correction can be off
    # Whether `step` honours `grad_scale` and `found_inf`, as torch's GradScaler sets them.
    takes_gradient_scale = False

    def obstacle(self, device: Device) -> str | None:
        """Return why it does not work on such a device, or None."""
        return None

    @abstractmethod
    def build(self, model: nn.Module, settings: OptimizerSettings) -> torch.optim.Optimizer:
        """Build it; the learning rate of all groups is set before each step."""

    def set_updates(
        self, optimizer: torch.optim.Optimizer, parameter: torch.Tensor, updates: int
    ) -> None:
        """Set the number of updates made so far, on which Adam's bias correction depends."""
        optimizer.state[parameter]["step"] = torch.tensor(float(updates), device=parameter.device)


class TorchAdamW(OptimizerKind):
    """torch's fused AdamW; runs on every device."""

    is_adamw = takes_gradient_scale = True

    def build(self, model: nn.Module, settings: OptimizerSettings) -> torch.optim.Optimizer:
        """Build it."""
        groups = parameter_groups(model, settings)
        optimizer = torch.optim.AdamW(groups, fused=True, **_adam_values(settings))
        return optimizer if settings.bias_correction else without_bias_correction(optimizer)


class FusedAdamW(OptimizerKind):
    """FusedAdam of DeepSpeed, which is compiled with nvcc when the first is built, or of apex."""

    is_adamw = True

    def __init__(self, library: str, fused_class: Callable[[], type]) -> None:
        """`fused_class` imports and returns the class."""
        self.library, self.fused_class = library, fused_class

    def obstacle(self, device: Device) -> str | None:
        """Refuse a CPU."""
        return "needs a CUDA device; on a CPU use torch" if device == "cpu" else None

    def build(self, model: nn.Module, settings: OptimizerSettings) -> torch.optim.Optimizer:
        """Build it.

        Raises:
            ConfigError: it cannot be compiled here, or is not installed.
        """
        groups = parameter_groups(model, settings)
        try:
            optimizer: torch.optim.Optimizer = self.fused_class()(
                groups,
                adam_w_mode=True,
                bias_correction=settings.bias_correction,
                **_adam_values(settings),
            )
        except Exception as error:  # of DeepSpeed's builder, torch's, ninja's or a compiler
            lines = str(error).splitlines() or [""]
            # Of a build: the first complaint of its tools, not "Error building extension".
            complaint = re.compile(r"\berror *:|\bfatal\b|cannot find -l|: not found")
            line = next(filter(complaint.search, lines), lines[0])
            raise ConfigError(
                f"optimizer.kind={self.library!r} cannot be built here: {type(error).__name__}: "
                f"{plain(line.strip())}; use --optimizer.kind torch"
            ) from error
        return optimizer

    def set_updates(
        self, optimizer: torch.optim.Optimizer, parameter: torch.Tensor, updates: int
    ) -> None:
        """Set the number of updates where DeepSpeed counts them, and where apex does."""
        optimizer.state[parameter]["step"] = updates
        for group in optimizer.param_groups:
            group["step"] = updates


OPTIMIZERS: dict[str, OptimizerKind] = {
    "torch": TorchAdamW(),
    "deepspeed": FusedAdamW("deepspeed", fused_adam),
    # NVIDIA's; another package of this name is on the package index.
    "apex": FusedAdamW("apex", lambda: import_module("apex.optimizers").FusedAdam),
}


def checked_optimizer(
    settings: OptimizerSettings, device: Device, ds_config: dict[str, Any]
) -> OptimizerKind:
    """Return the optimizer that `optimizer.kind` names.

    Raises:
        ConfigError: there is no optimizer of that name, or it does not work on this device, in this
            version of torch or at this ZeRO stage.
    """
    kind = optimizer_named(settings.kind)
    if obstacle := kind.obstacle(device):
        raise ConfigError(f"optimizer.kind={settings.kind!r} {obstacle}")
    if zero_stage(ds_config) not in kind.zero_stages:
        raise ConfigError(
            f"optimizer.kind={settings.kind!r} does not work at ZeRO stage "
            f"{zero_stage(ds_config)}: {kind.zero_obstacle}"
        )
    if not settings.bias_correction and not kind.is_adamw:
        names = [name for name, each in OPTIMIZERS.items() if each.is_adamw]
        raise ConfigError(
            f"optimizer.bias_correction=False is not available with optimizer.kind="
            f"{settings.kind!r}; use {', '.join(names)}, or remove it"
        )
    return kind


def optimizer_named(name: str) -> OptimizerKind:
    """Return the optimizer that `optimizer.kind` names; it may not work here.

    Raises:
        ConfigError: there is none of that name.
    """
    # torch's, which needs no compiler, and leaves out an update that is not finite.
    auto = OPTIMIZERS["torch"]
    return lookup({"auto": auto, **OPTIMIZERS}, name, setting="optimizer.kind")


def _adam_values(settings: OptimizerSettings) -> dict[str, Any]:
    return {"lr": 0.0, "betas": settings.betas, "eps": settings.epsilon}
