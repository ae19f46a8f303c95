"""What the attention kernels of attention_backends.py need of their tensors. Letters as there."""

from contextlib import AbstractContextManager
from typing import cast

import torch
from torch import Tensor


def device_of(x: Tensor) -> AbstractContextManager[None]:
    """Make the GPU of x the current one: kernels start there. Nothing for a tensor on a CPU."""
    return cast(AbstractContextManager[None], torch.cuda.device_of(x))  # type: ignore[no-untyped-call]


def like_BSNH(x_BNSH: Tensor) -> Tensor:
    """Return BNSH over memory in the order BSNH, so that joining the heads needs no copy."""
    batch, heads, length, head_width = x_BNSH.shape
    return x_BNSH.new_empty((batch, length, heads, head_width)).transpose(1, 2)
