"""The numbers of the last steps, read without a wait for the device.

A step costs one small copy: on CUDA its losses and gradient norm are copied to pinned host memory
asynchronously and read two steps later, so that neither host nor device waits.
"""

import math
from collections import deque
from typing import NamedTuple

import torch
from torch import Tensor

from pretrain.engine.engine import Engine, StepResult

# Steps after which the numbers are read. With 2, the host waits only if it is more than a step
# ahead of the GPU.
READ_AFTER = {"cpu": 0, "cuda": 2}

# To be summed over the ranks; of no step.
NOTHING = dict.fromkeys(
    ("step", "loss", "bad_losses", "bad_gradients", "overflows", "loss_scale"), 0.0
)


class _Unread(NamedTuple):
    step: int  # from 1, as in metrics.jsonl
    result: StepResult
    numbers: Tensor  # the losses, and the norm if it is a tensor
    arrived: torch.cuda.Event | None


class StepHistory:
    """The steps of this rank that were not read yet."""

    def __init__(self, engine: Engine) -> None:
        self._read_after = READ_AFTER[engine.ranks.device]
        self._scales_loss = engine.scales_loss
        self._unread: deque[_Unread] = deque()

    def add(self, step: int, result: StepResult) -> None:
        """Keep a step."""
        numbers, norm = result.losses.detach(), result.gradient_norm
        if isinstance(norm, Tensor):
            norm = norm.detach().to(numbers.device, numbers.dtype).reshape(1)
            numbers = torch.cat([numbers, norm])
        arrived = None
        if numbers.is_cuda:
            pinned = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
            numbers = pinned.copy_(numbers, non_blocking=True)
            arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            arrived.record()
        self._unread.append(_Unread(step, result, numbers, arrived))

    @property
    def has_unread(self) -> bool:
        """Return whether steps were added that were not read yet."""
        return bool(self._unread)

    def next_read(self, *, all_steps: bool = False) -> dict[str, float]:
        """Return the numbers of the oldest unread step, to be summed over the ranks.

        NOTHING where it is not old enough, but with `all_steps`. All ranks call it equally often,
        so that they read the same steps.
        """
        if len(self._unread) <= (0 if all_steps else self._read_after):
            return dict(NOTHING)
        step, result, numbers, arrived = self._unread.popleft()
        if arrived is not None:
            arrived.synchronize()
        losses, norm = numbers.tolist(), result.gradient_norm
        if isinstance(norm, Tensor):
            norm = losses.pop()
        bad = sum(not math.isfinite(loss) for loss in losses)
        overflows = self._scales_loss and result.skipped
        # At ZeRO stage 0 without clipping the norm is not known.
        is_finite = norm is None or math.isfinite(norm)
        return {
            "step": float(step),
            "loss": 0.0 if bad else sum(losses) / len(losses),
            "bad_losses": float(bad),
            "bad_gradients": float(not overflows and not is_finite),
            "overflows": float(overflows),
            "loss_scale": result.loss_scale,
        }
