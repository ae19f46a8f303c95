"""Ways to compute softmax(scale q k^T + bias) v with a bias that is learned (TUPE Eq. 2, 7, 8).

All of them are one function, `AttentionBackend`, and differ in speed, memory, and where they run;
choosing among them is the task of execution.py:

    eager    written out; the reference
    fused    the same with our own kernels for CPUs, see cpu_kernels.py
    sdpa     torch's `scaled_dot_product_attention`
    folded   a bias that is a product, as wider heads of plain attention: TUPE-A, nothing to add
    triton   our own kernels for NVIDIA GPUs, see triton_attention.py

Queries are not scaled yet. The bias is cast inside each layer, so that its gradient is summed over
the layers in fp32. Shape letters as in positions.py; C = 2H.
"""

import contextlib
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from pretrain.model.positions import PositionTerms


class AttentionBackend(Protocol):
    """softmax(scale q k^T + bias) v."""

    def __call__(
        self,
        q_BNSH: Tensor,
        k_BNSH: Tensor,
        v_BNSH: Tensor,
        terms: PositionTerms,
        *,
        scale: float,
        dropout: float,
        lengths_B: Tensor | None,
    ) -> Tensor:
        """Return the mixed values, shape BNSH.

        Args:
            q_BNSH: queries, not scaled.
            k_BNSH: keys.
            v_BNSH: values.
            terms: `bias_NSS` is added to the scaled scores.
            scale: of the scores.
            dropout: of the attention weights; 0.0 in evaluation.
            lengths_B: keys from this place on are padding and get no weight (int32, at least 1);
                None: every row is full. What padding asks for is computed, and finite.
        """


def eager(
    q_BNSH: Tensor,
    k_BNSH: Tensor,
    v_BNSH: Tensor,
    terms: PositionTerms,
    *,
    scale: float,
    dropout: float,
    lengths_B: Tensor | None,
) -> Tensor:
    """Attend by three matrix operations.

    `scaled_dot_product_attention` falls back to an fp32 path for a bias that needs a gradient:
    three times slower than this in bf16 on a CPU.
    """
    # Contiguous keys are transposed without a copy inside the product.
    scores_BNSS = (q_BNSH * scale) @ k_BNSH.contiguous().transpose(-1, -2)
    if terms.bias_NSS is not None:
        scores_BNSS = scores_BNSS.add_(terms.bias_NSS.to(scores_BNSS.dtype))
    if lengths_B is not None:
        padding_B11S = ~_is_word(lengths_B, k_BNSH.shape[2])
        scores_BNSS = scores_BNSS.masked_fill(padding_B11S, -torch.inf)
    weights_BNSS = torch.softmax(scores_BNSS, dim=-1, dtype=scores_BNSS.dtype)
    if dropout:
        weights_BNSS = F.dropout(weights_BNSS, dropout)
    return weights_BNSS @ v_BNSH


def fused(
    q_BNSH: Tensor,
    k_BNSH: Tensor,
    v_BNSH: Tensor,
    terms: PositionTerms,
    *,
    scale: float,
    dropout: float,
    lengths_B: Tensor | None,
) -> Tensor:
    """Attend by our own kernels for CPUs."""
    from pretrain.kernels.cpu_kernels import fused_attention

    assert not dropout, "see execution.py"
    return fused_attention(q_BNSH, k_BNSH, v_BNSH, terms.bias_NSS, lengths_B, scale)


def sdpa(
    q_BNSH: Tensor,
    k_BNSH: Tensor,
    v_BNSH: Tensor,
    terms: PositionTerms,
    *,
    scale: float,
    dropout: float,
    lengths_B: Tensor | None,
) -> Tensor:
    """Attend by torch's function."""
    mask_BNSS = None if terms.bias_NSS is None else terms.bias_NSS.to(q_BNSH.dtype).unsqueeze(0)
    if lengths_B is not None:
        is_word_B11S = _is_word(lengths_B, k_BNSH.shape[2])
        if mask_BNSS is None:
            mask_BNSS = is_word_B11S
        else:
            mask_BNSS = mask_BNSS.masked_fill(~is_word_B11S, -torch.inf)
    return _torch_attention(q_BNSH, k_BNSH, v_BNSH, mask_BNSS, scale=scale, dropout=dropout)


def folded(
    q_BNSH: Tensor,
    k_BNSH: Tensor,
    v_BNSH: Tensor,
    terms: PositionTerms,
    *,
    scale: float,
    dropout: float,
    lengths_B: Tensor | None,
) -> Tensor:
    """Attend with the positional factors appended to queries and keys; no bias is ever formed.

    q_i k_j + qp_i kp_j is one product of vectors of width 2H. What is left of the reset is
    theta_2, which every word adds to its score of key 0, [CLS]. With p_0 the weight of key 0
    without it, and c = exp(theta_2) - 1, the true output is (o + c p_0 v_0) / (1 + c p_0); above
    and below are divided by exp(theta_2) where that is large. The values are padded to width 2H
    anyway: a column of the padding that is 1 at key 0 returns p_0.
    theta_1 has no influence at all (softmax does not see a constant), and is left out.
    """
    assert terms.folded is not None and not dropout, "see execution.py"
    batch, heads, length, width = q_BNSH.shape
    query_NSH, key_NSH, to_cls_N = terms.folded
    q_BNSC = torch.cat([q_BNSH, query_NSH.to(q_BNSH.dtype).expand_as(q_BNSH)], dim=-1)
    k_BNSC = torch.cat([k_BNSH, key_NSH.to(k_BNSH.dtype).expand_as(k_BNSH)], dim=-1)
    is_cls_S = torch.arange(length, device=q_BNSH.device) == 0
    padding_SH = F.pad(is_cls_S.to(v_BNSH.dtype).unsqueeze(1), (0, width - 1))
    v_BNSC = torch.cat([v_BNSH, padding_SH.expand_as(v_BNSH)], dim=-1)
    mask_B11S = None if lengths_B is None else _is_word(lengths_B, length)
    mixed_BNSC = _torch_attention(q_BNSC, k_BNSC, v_BNSC, mask_B11S, scale=scale, dropout=0.0)
    mixed_BNSH = mixed_BNSC[..., :width]
    if to_cls_N is None:
        return mixed_BNSH
    theta_NS = to_cls_N.float().unsqueeze(1) * ~is_cls_S
    one_NS1 = torch.exp(-theta_NS.clamp(min=0)).unsqueeze(-1)
    excess_NS1 = torch.exp(theta_NS.clamp(max=0)).unsqueeze(-1) - one_NS1
    weight_BNS1 = excess_NS1 * mixed_BNSC[..., width : width + 1].float()
    corrected_BNSH = one_NS1 * mixed_BNSH + weight_BNS1 * v_BNSH[:, :, :1]
    return (corrected_BNSH / (one_NS1 + weight_BNS1)).to(q_BNSH.dtype)


def triton(
    q_BNSH: Tensor,
    k_BNSH: Tensor,
    v_BNSH: Tensor,
    terms: PositionTerms,
    *,
    scale: float,
    dropout: float,
    lengths_B: Tensor | None,
) -> Tensor:
    """Attend by our own kernels."""
    from pretrain.kernels.triton_attention import triton_attention

    assert not dropout, "see execution.py"
    return triton_attention(q_BNSH, k_BNSH, v_BNSH, terms.bias_NSS, lengths_B, scale)


ATTENTION_BACKENDS: dict[str, AttentionBackend] = {
    "eager": eager,
    "fused": fused,
    "sdpa": sdpa,
    "folded": folded,
    "triton": triton,
}


def _torch_attention(
    q_BNSH: Tensor,
    k_BNSH: Tensor,
    v_BNSH: Tensor,
    mask_BNSS: Tensor | None,
    *,
    scale: float,
    dropout: float,
) -> Tensor:
    """Let torch pick a kernel; on CUDA with a mask, of those that take it."""
    kernels: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if mask_BNSS is not None and q_BNSH.is_cuda:
        # Not cuDNN: with a mask its backward pass gives NaN at some lengths (pytorch#196678).
        choice = [SDPBackend.MATH]
        if q_BNSH.requires_grad or not mask_BNSS.requires_grad:
            # CUTLASS writes out of bounds where the bias alone needs a gradient (pytorch#188302).
            choice.append(SDPBackend.EFFICIENT_ATTENTION)
        kernels = sdpa_kernel(choice)
    with kernels:
        return F.scaled_dot_product_attention(
            q_BNSH, k_BNSH, v_BNSH, mask_BNSS, dropout_p=dropout, scale=scale
        )


def _is_word(lengths_B: Tensor, length: int) -> Tensor:
    positions_S = torch.arange(length, device=lengths_B.device)
    return positions_S < lengths_B.view(-1, 1, 1, 1)
