"""Ways to compute softmax(scale q k^T + bias) v with a bias that is learned (TUPE Eq. 2, 7, 8).

All are functions of `AttentionInputs`, and differ in speed, memory and the devices they run on;
execution.py chooses among them:

    eager    written out; the reference
    fused    the same with our kernels for CPUs, see cpu_kernels.py
    sdpa     torch's `scaled_dot_product_attention`
    triton   our kernels for NVIDIA GPUs, see triton_attention.py

The gradient of the bias is summed over the layers in fp32: each layer casts the fp32 bias, which
costs 1/B of a pass over its scores. The kernels of "triton" store no scores and read the bias four
times a layer, once transposed; `terms_of_pass` casts it for them once for all layers.

Shape letters as in positions.py.
"""

import torch
from torch import Tensor

from pretrain.model.position_encoding import PositionEncoding, PositionTerms
from pretrain.model.torch_attention import (
    AttentionBackend,
    AttentionInputs,
    eager,
    queries_keys_values,
    sdpa,
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
    terms = encoding.terms(length, device=device)
    if backend != "triton" or terms.bias_NSS is None:
        return terms
    from pretrain.model.kernels.triton_attention import bias_as_read

    return terms._replace(read_bias_2NSS=bias_as_read(terms.bias_NSS, dtype))


def fused(inputs: AttentionInputs) -> Tensor:
    """Attend by our kernels for CPUs."""
    from pretrain.model.kernels.cpu_kernels import fused_attention

    q_BNSH, k_BNSH, v_BNSH = queries_keys_values(inputs)
    _, terms, scale, dropout, lengths_B = inputs
    return fused_attention(q_BNSH, k_BNSH, v_BNSH, terms.bias_NSS, lengths_B, scale, dropout)


def triton(inputs: AttentionInputs) -> Tensor:
    """Attend by our kernels for NVIDIA GPUs."""
    from pretrain.model.kernels.triton_attention import triton_attention

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
    "triton": triton,
}
