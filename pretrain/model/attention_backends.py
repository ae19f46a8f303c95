"""Ways to compute softmax(scale q k^T + bias) v with a bias that is learned (TUPE Eq. 2, 7, 8).

All are functions of `AttentionInputs`, and differ in speed, memory and the devices they run on;
execution.py chooses among them:

    eager    written out; the reference
    fused    the same with our kernels for CPUs, see cpu_kernels.py
    sdpa     torch's `scaled_dot_product_attention`
    folded   a bias that is a product, as wider heads of attention without a bias (TUPE-A)
    triton   our kernels for NVIDIA GPUs, see triton_attention.py

The gradient of the bias is summed over the layers in fp32: each layer casts the fp32 bias, which
costs 1/B of a pass over its scores. The kernels of "triton" store no scores and read the bias four
times a layer, once transposed; `terms_of_pass` casts it for them once for all layers.

Shape letters as in positions.py; C = 2H.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from pretrain.model.position_encoding import (
    PositionEncoding,
    PositionTerms,
    relative_scores,
    transform_query_key,
)
from pretrain.model.torch_attention import torch_attention


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


def terms_of_pass(
    encoding: PositionEncoding,
    backend: str,
    length: int,
    *,
    device: torch.device,
    dtype: torch.dtype,
) -> PositionTerms:
    """Return the terms that all layers share, as a backend reads them with q, k, v of a dtype."""
    terms = encoding.terms(length, device=device, folded=backend == "folded")
    if backend != "triton" or terms.bias_NSS is None:
        return terms
    from pretrain.kernels.triton_attention import bias_as_read

    return terms._replace(read_bias_2NSS=bias_as_read(terms.bias_NSS, dtype))


def eager(inputs: AttentionInputs, drop: Callable[[Tensor, float], Tensor] = F.dropout) -> Tensor:
    """Attend by three matrix operations; `drop` applies the dropout to the weights.

    `scaled_dot_product_attention` falls back to an fp32 path for a bias that needs a gradient:
    three times slower than this in bf16 on a CPU.
    """
    q_BNSH, k_BNSH, v_BNSH = queries_keys_values(inputs)
    _, terms, scale, dropout, lengths_B = inputs
    # Contiguous keys are transposed without a copy inside the product.
    scores_BNSS = (q_BNSH * scale) @ k_BNSH.contiguous().transpose(-1, -2)
    bias_BNSS = _bias(q_BNSH, terms, scale)
    if bias_BNSS is not None:
        scores_BNSS = scores_BNSS.add_(bias_BNSS)
    if lengths_B is not None:
        padding_B11S = ~_is_word(lengths_B, k_BNSH.shape[2])
        scores_BNSS = scores_BNSS.masked_fill(padding_B11S, -torch.inf)
    weights_BNSS = torch.softmax(scores_BNSS, dim=-1, dtype=scores_BNSS.dtype)
    if dropout:
        weights_BNSS = drop(weights_BNSS, dropout)
    return weights_BNSS @ v_BNSH


def fused(inputs: AttentionInputs) -> Tensor:
    """Attend by our kernels for CPUs."""
    from pretrain.kernels.cpu_kernels import fused_attention

    q_BNSH, k_BNSH, v_BNSH = queries_keys_values(inputs)
    _, terms, scale, dropout, lengths_B = inputs
    assert not dropout, "refused by execution.py"
    return fused_attention(q_BNSH, k_BNSH, v_BNSH, terms.bias_NSS, lengths_B, scale)


def sdpa(inputs: AttentionInputs) -> Tensor:
    """Attend by torch's function."""
    q_BNSH, k_BNSH, v_BNSH = queries_keys_values(inputs)
    _, terms, scale, dropout, lengths_B = inputs
    mask_BNSS = _bias(q_BNSH, terms, scale)
    if mask_BNSS is not None:
        mask_BNSS = mask_BNSS.contiguous()  # kernels for GPUs read aligned rows
    if lengths_B is not None:
        is_word_B11S = _is_word(lengths_B, k_BNSH.shape[2])
        if mask_BNSS is None:
            mask_BNSS = is_word_B11S
        else:
            mask_BNSS = mask_BNSS.masked_fill(~is_word_B11S, -torch.inf)
    return torch_attention(q_BNSH, k_BNSH, v_BNSH, mask_BNSS, scale=scale, dropout=dropout)


def folded(inputs: AttentionInputs) -> Tensor:
    """Attend with the positional factors appended to queries and keys; no bias is formed.

    q_i k_j + qp_i kp_j is one product of vectors of width 2H. The reset leaves theta_2, which
    every word adds to its score of key 0, [CLS]. With p_0 the weight of key 0 without it, and
    c = exp(theta_2) - 1, the output is (o + c p_0 v_0) / (1 + c p_0); numerator and denominator
    are divided by exp(theta_2) where that is large. The values must be padded to width 2H: a
    column of the padding that is 1 at key 0 returns p_0. theta_1 is left out: it is constant over
    the keys, and softmax ignores a constant.
    """
    q_BNSH, k_BNSH, v_BNSH = queries_keys_values(inputs)
    _, terms, scale, dropout, lengths_B = inputs
    assert terms.folded is not None and not dropout, "refused by execution.py"
    batch, heads, length, width = q_BNSH.shape
    query_NSH, key_NSH, to_cls_N = terms.folded
    q_BNSC = torch.cat([q_BNSH, query_NSH.to(q_BNSH.dtype).expand_as(q_BNSH)], dim=-1)
    k_BNSC = torch.cat([k_BNSH, key_NSH.to(k_BNSH.dtype).expand_as(k_BNSH)], dim=-1)
    is_cls_S = torch.arange(length, device=q_BNSH.device) == 0
    padding_SH = F.pad(is_cls_S.to(v_BNSH.dtype).unsqueeze(1), (0, width - 1))
    v_BNSC = torch.cat([v_BNSH, padding_SH.expand_as(v_BNSH)], dim=-1)
    mask_B11S = None if lengths_B is None else _is_word(lengths_B, length)
    mixed_BNSC = torch_attention(q_BNSC, k_BNSC, v_BNSC, mask_B11S, scale=scale)
    mixed_BNSH = mixed_BNSC[..., :width]
    if to_cls_N is None:
        return mixed_BNSH
    theta_NS = to_cls_N.float().unsqueeze(1) * ~is_cls_S
    one_NS1 = torch.exp(-theta_NS.clamp(min=0)).unsqueeze(-1)
    excess_NS1 = torch.exp(theta_NS.clamp(max=0)).unsqueeze(-1) - one_NS1
    weight_BNS1 = excess_NS1 * mixed_BNSC[..., width : width + 1].float()
    corrected_BNSH = one_NS1 * mixed_BNSH + weight_BNS1 * v_BNSH[:, :, :1]
    return (corrected_BNSH / (one_NS1 + weight_BNS1)).to(q_BNSH.dtype)


def triton(inputs: AttentionInputs) -> Tensor:
    """Attend by our kernels for NVIDIA GPUs."""
    from pretrain.kernels.triton_attention import triton_attention

    qkv_BS3NH, terms, scale, dropout, lengths_B = inputs
    if terms.query_key_NSH is not None or terms.rotation is not None:
        parts = [part_BNSH.transpose(1, 2) for part_BNSH in queries_keys_values(inputs)]
        qkv_BS3NH = torch.stack(parts, dim=2)
    return triton_attention(
        qkv_BS3NH, terms.bias_NSS, lengths_B, scale, dropout, terms.read_bias_2NSS
    )


ATTENTION_BACKENDS: dict[str, AttentionBackend] = {
    "eager": eager,
    "fused": fused,
    "sdpa": sdpa,
    "folded": folded,
    "triton": triton,
}


def _bias(q_BNSH: Tensor, terms: PositionTerms, scale: float) -> Tensor | None:
    """Return what is added to the scaled scores, BNSS; B is 1 where it depends on no query."""
    bias_BNSS = None if terms.bias_NSS is None else terms.bias_NSS.to(q_BNSH.dtype).unsqueeze(0)
    if terms.relative_key_RH is None:
        return bias_BNSS
    scores_BNSS = relative_scores(q_BNSH, terms.relative_key_RH, scale)
    return scores_BNSS if bias_BNSS is None else bias_BNSS + scores_BNSS


def _is_word(lengths_B: Tensor, length: int) -> Tensor:
    positions_S = torch.arange(length, device=lengths_B.device)
    return positions_S < lengths_B.view(-1, 1, 1, 1)
