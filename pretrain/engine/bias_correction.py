"""AdamW without bias correction, for torch's AdamW, which always corrects.

Adam divides its two moments by 1 - beta^t, where t counts the updates (Kingma & Ba 2015, Alg. 1).
Devlin et al. 2018 left it out, and so did bing_bert. DeepSpeed's and NVIDIA's FusedAdam have a
switch for it; torch's has none.
"""

from typing import Any

import torch
from torch import Tensor

# An update of this number divides by exactly 1: beta^t is 0 for every beta below 1. It is finite in
# fp32, the type in which torch counts, and one more is the same number.
NO_CORRECTION = 1e30


def without_bias_correction(optimizer: torch.optim.AdamW) -> torch.optim.AdamW:
    """Let an optimizer update without bias correction, and count its updates as before.

    By hooks instead of a class of its own: ZeRO accepts only the classes that it knows.
    """
    counts = _Counts()
    optimizer.register_step_pre_hook(counts.replace)
    optimizer.register_step_post_hook(counts.restore)
    return optimizer


class _Counts:
    """The counts of updates, which are replaced while the optimizer updates."""

    def __init__(self) -> None:
        self._held: list[tuple[dict[str, Any], Tensor]] = []

    @torch.no_grad()
    def replace(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Replace the count of each parameter that is going to be updated."""
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = optimizer.state[parameter]
                if not state:  # which torch would make, if it were empty
                    state["step"] = torch.zeros((), device=parameter.device)
                    state["exp_avg"] = torch.zeros_like(parameter)
                    state["exp_avg_sq"] = torch.zeros_like(parameter)
                self._held.append((state, state["step"]))
                state["step"] = torch.full_like(state["step"], NO_CORRECTION)

    @torch.no_grad()
    def restore(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Put the counts back, one higher if the optimizer has updated."""
        left_out = vars(optimizer).get("found_inf")  # as torch's GradScaler sets it
        made = 1 if left_out is None else 1 - left_out
        for state, count in self._held:
            state["step"] = count.add_(made)
        self._held.clear()
