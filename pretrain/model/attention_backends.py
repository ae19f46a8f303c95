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

import torch
import torch.nn.functional as F
from torch import Tensor

from pretrain.model.position_encoding import PositionEncoding, PositionTerms
from pretrain.model.torch_attention import (
    AttentionBackend,
    AttentionInputs,
    eager,
    is_word,
    queries_keys_values,
    sdpa,
    torch_attention,
)


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


def fused(inputs: AttentionInputs) -> Tensor:
    """Attend by our kernels for CPUs."""
    from pretrain.kernels.cpu_kernels import fused_attention

    q_BNSH, k_BNSH, v_BNSH = queries_keys_values(inputs)
    _, terms, scale, dropout, lengths_B = inputs
    assert not dropout, "refused by execution.py"
    return fused_attention(q_BNSH, k_BNSH, v_BNSH, terms.bias_NSS, lengths_B, scale)


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
    mask_B11S = None if lengths_B is None else is_word(lengths_B, length)
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
