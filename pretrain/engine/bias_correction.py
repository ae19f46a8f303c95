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
    held: list[tuple[dict[str, Any], Tensor]] = []  # while the optimizer updates

    @torch.no_grad()
    def replace(*_: Any) -> None:
        for parameter in (one for group in optimizer.param_groups for one in group["params"]):
            if parameter.grad is None:
                continue
            state = optimizer.state[parameter]
            if not state:  # which torch would make, if it were empty
                state["step"] = torch.zeros((), device=parameter.device)
                state["exp_avg"] = torch.zeros_like(parameter)
                state["exp_avg_sq"] = torch.zeros_like(parameter)
            held.append((state, state["step"]))
            state["step"] = torch.full_like(state["step"], NO_CORRECTION)

    @torch.no_grad()
    def restore(*_: Any) -> None:
        left_out = vars(optimizer).get("found_inf")  # as torch's GradScaler sets it
        for state, count in held:
            state["step"] = count.add_(1 if left_out is None else 1 - left_out)
        held.clear()

    optimizer.register_step_pre_hook(replace)
    optimizer.register_step_post_hook(restore)
    return optimizer
