"""AdamW, in the implementation that suits the machine, and what it decays."""

from typing import Any, Literal

import torch
from torch import nn

from pretrain.config.errors import ConfigError
from pretrain.config.settings import OptimizerSettings
from pretrain.distributed.deepspeed_library import fused_adam


def build_optimizer(
    model: nn.Module, settings: OptimizerSettings, device: Literal["cpu", "cuda"]
) -> torch.optim.Optimizer:
    """Build AdamW over two groups: with weight decay, and without (biases and norms).

    Raises:
        ConfigError: the chosen implementation is not to be had on this machine.
    """
    groups = parameter_groups(model, settings)
    values: dict[str, Any] = {"lr": 0.0, "betas": settings.betas, "eps": settings.epsilon}
    kind = settings.kind
    if kind == "auto":
        kind = "deepspeed" if device == "cuda" else "torch"
    if kind == "torch":
        return torch.optim.AdamW(groups, fused=True, **values)
    if device == "cpu":
        raise ConfigError(f"optimizer.kind={kind!r} needs a CUDA device; on a CPU use torch")
    if kind == "apex":
        return _apex_adam()(groups, adam_w_mode=True, **values)  # type: ignore[no-any-return]
    return fused_adam()(groups, adam_w_mode=True, **values)  # type: ignore[no-any-return]


def parameter_groups(model: nn.Module, settings: OptimizerSettings) -> list[dict[str, Any]]:
    """Split the parameters by weight decay.

    Vectors (biases, norms, the output bias) do not decay, matrices and tables do, as in BERT;
    `decay_everything` decays all, as the TUPE authors' trainer does.
    """
    decayed: list[nn.Parameter] = []
    undecayed: list[nn.Parameter] = []
    for parameter in model.parameters():
        decays = settings.decay_everything or parameter.ndim > 1
        (decayed if decays else undecayed).append(parameter)
    groups = [
        {"params": decayed, "weight_decay": settings.weight_decay},
        {"params": undecayed, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def _apex_adam() -> Any:
    try:
        from apex.optimizers import FusedAdam
    except ImportError:
        raise ConfigError(
            "optimizer.kind='apex', but NVIDIA apex is not installed (the package named apex on "
            "the package index is another one); build it, or use optimizer.kind=deepspeed"
        ) from None
    return FusedAdam
