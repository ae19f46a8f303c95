"""torch's `scaled_dot_product_attention`, restricted to kernels that are correct with a mask.

Exported models carry a copy of this file, so it imports nothing but torch and the standard library.
Shape letters as in positions.py.
"""

import contextlib

import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel


def torch_attention(
    q_BNSH: Tensor,
    k_BNSH: Tensor,
    v_BNSH: Tensor,
    mask_BNSS: Tensor | None,
    *,
    scale: float,
    dropout: float = 0.0,
) -> Tensor:
    """Return softmax(scale q k^T + mask) v, shape BNSH; CUDA excludes some kernels.

    Args:
        q_BNSH: queries, not scaled.
        k_BNSH: keys.
        v_BNSH: values.
        mask_BNSS: added to the scaled scores, or boolean and False where a key is hidden; any of
            its first three dimensions may be 1.
        scale: of the scores.
        dropout: of the attention weights.
    """
    kernels: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if q_BNSH.is_cuda:
        # Not cuDNN: on an H200 (torch 2.11, cuDNN 9.19) its gradients were wrong where that of the
        # output came in a second layout; with a mask it gives NaN at some lengths (pytorch#196678).
        choice = [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]
        if mask_BNSS is None or q_BNSH.requires_grad or not mask_BNSS.requires_grad:
            # CUTLASS writes out of bounds where the bias alone needs a gradient (pytorch#188302).
            choice.append(SDPBackend.EFFICIENT_ATTENTION)
        kernels = sdpa_kernel(choice)
    with kernels:
        return F.scaled_dot_product_attention(
            q_BNSH, k_BNSH, v_BNSH, mask_BNSS, dropout_p=dropout, scale=scale
        )
