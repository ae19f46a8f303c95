"""Attention by torch's own operations: softmax(scale q k^T + bias) v with a bias that is learned.

Exported models carry a copy of this file, so it imports nothing but torch, the standard library and
the files of positions. Shape letters as in positions.py.
"""

import contextlib
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from pretrain.model.position_encoding import PositionTerms, relative_scores, transform_query_key


class AttentionInputs(NamedTuple):
    """The inputs of a backend: softmax(scale q k^T + bias) v."""

    qkv_BS3NH: Tensor  # as projected, not scaled
    terms: PositionTerms
    scale: float  # of the scores
    dropout: float = 0.0  # of the attention weights
    # Keys from this place on are padding and get no weight (int32, at least 1); None: every row is
    # full. The output at queries that are padding is computed, and finite.
    lengths_B: Tensor | None = None


AttentionBackend = Callable[[AttentionInputs], Tensor]  # returns the mixed values, shape BNSH


def queries_keys_values(inputs: AttentionInputs) -> tuple[Tensor, Tensor, Tensor]:
    """Return q, k and v, shape BNSH, with the terms that act on queries and keys applied."""
    q_BNSH, k_BNSH, v_BNSH = inputs.qkv_BS3NH.permute(2, 0, 3, 1, 4)
    return *transform_query_key(q_BNSH, k_BNSH, inputs.terms), v_BNSH


def weights_and_values(inputs: AttentionInputs) -> tuple[Tensor, Tensor]:
    """Return the attention weights BNSS without dropout, and the values BNSH."""
    q_BNSH, k_BNSH, v_BNSH = queries_keys_values(inputs)
    # Contiguous keys are transposed without a copy inside the product.
    scores_BNSS = (q_BNSH * inputs.scale) @ k_BNSH.contiguous().transpose(-1, -2)
    bias_BNSS = _bias(q_BNSH, inputs.terms, inputs.scale)
    if bias_BNSS is not None:
        scores_BNSS = scores_BNSS.add_(bias_BNSS)
    if inputs.lengths_B is not None:
        padding_B11S = ~is_word(inputs.lengths_B, k_BNSH.shape[2])
        scores_BNSS = scores_BNSS.masked_fill(padding_B11S, -torch.inf)
    return torch.softmax(scores_BNSS, dim=-1, dtype=scores_BNSS.dtype), v_BNSH


def eager(inputs: AttentionInputs) -> Tensor:
    """Attend by three matrix operations.

    `scaled_dot_product_attention` falls back to an fp32 path for a bias that needs a gradient:
    three times slower than this in bf16 on a CPU.
    """
    weights_BNSS, v_BNSH = weights_and_values(inputs)
    if inputs.dropout:
        weights_BNSS = F.dropout(weights_BNSS, inputs.dropout)
    return weights_BNSS @ v_BNSH


def sdpa(inputs: AttentionInputs) -> Tensor:
    """Attend by torch's function; CUDA excludes some of its kernels."""
    q_BNSH, k_BNSH, v_BNSH = queries_keys_values(inputs)
    _, terms, scale, dropout, lengths_B = inputs
    mask_BNSS = _bias(q_BNSH, terms, scale)
    if mask_BNSS is not None:
        mask_BNSS = mask_BNSS.contiguous()  # kernels for GPUs read aligned rows
    if lengths_B is not None:
        is_word_B11S = is_word(lengths_B, k_BNSH.shape[2])
        if mask_BNSS is None:
            mask_BNSS = is_word_B11S
        else:
            mask_BNSS = mask_BNSS.masked_fill(~is_word_B11S, -torch.inf)
    with right_kernels(q_BNSH, mask_BNSS):
        return F.scaled_dot_product_attention(
            q_BNSH, k_BNSH, v_BNSH, mask_BNSS, dropout_p=dropout, scale=scale
        )


def right_kernels(
    q_BNSH: Tensor, mask_BNSS: Tensor | None
) -> contextlib.AbstractContextManager[None]:
    """Exclude, on CUDA, those of torch's kernels that are wrong for these inputs."""
    if not q_BNSH.is_cuda:
        return contextlib.nullcontext()
    # Not cuDNN: on an H200 (torch 2.11, cuDNN 9.19) its gradients were wrong where that of the
    # output came in a second layout; with a mask it gives NaN at some lengths (pytorch#196678).
    choice = [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]
    if mask_BNSS is None or q_BNSH.requires_grad or not mask_BNSS.requires_grad:
        # CUTLASS writes out of bounds where the bias alone needs a gradient (pytorch#188302).
        choice.append(SDPBackend.EFFICIENT_ATTENTION)
    return sdpa_kernel(choice)


def is_word(lengths_B: Tensor, length: int) -> Tensor:
    """Return which keys are no padding, shape B11S."""
    positions_S = torch.arange(length, device=lengths_B.device)
    return positions_S < lengths_B.view(-1, 1, 1, 1)


def _bias(q_BNSH: Tensor, terms: PositionTerms, scale: float) -> Tensor | None:
    """Return what is added to the scaled scores, BNSS; B is 1 where it depends on no row."""
    bias_BNSS = None if terms.bias_NSS is None else terms.bias_NSS.to(q_BNSH.dtype)
    if bias_BNSS is not None and bias_BNSS.dim() == 3:
        bias_BNSS = bias_BNSS.unsqueeze(0)
    if terms.relative_key_RH is None:
        return bias_BNSS
    scores_BNSS = relative_scores(q_BNSH, terms.relative_key_RH, scale)
    return scores_BNSS if bias_BNSS is None else bias_BNSS + scores_BNSS
