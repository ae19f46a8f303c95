"""Compare an attention backend with the reference on this device.

Kernels depend on the GPU, its driver and the versions of several packages, and some have returned
wrong numbers without an error (pytorch#191612, #196678). So each run checks those that it is about
to use once, at its own length and type.
"""

import torch
from torch import Tensor

from pretrain.config.settings import ModelSettings
from pretrain.model.attention_backends import ATTENTION_BACKENDS, AttentionInputs
from pretrain.model.encoder import build_position_encoding
from pretrain.model.positions import PositionEncoding, transform_query_key

# Relative error of a tensor as a whole. The products of fp32 may run in TF32.
BOUNDS = {torch.float32: 1e-2, torch.float16: 1e-2, torch.bfloat16: 3e-2}
SEQUENCES = 2


def disagreement_with_eager(
    backend: str, model: ModelSettings, *, length: int, device: str, dtype: torch.dtype
) -> str | None:
    """Return how output or gradients of a backend differ from the reference, or None.

    Arguments as in `errors_of`.
    """
    try:
        found = errors_of(backend, model, length=length, device=device, dtype=dtype)
    except Exception as error:  # of a compiler, a driver or a kernel
        first_line = next(iter(str(error).strip().splitlines()), "without a message")
        return f"{type(error).__name__}: {first_line[:200]}"
    for name, distance in found.items():
        if not distance <= BOUNDS[dtype]:  # NaN is not
            return f"its {name} differs from the reference by {distance:.1e}"
    return None


def relative_errors(found: dict[str, Tensor], expected: dict[str, Tensor]) -> dict[str, float]:
    """Return the distance of each tensor from the expected one, relative to the latter's norm."""
    return {
        name: float((found[name].to(tensor.dtype) - tensor).norm() / tensor.norm().clamp(min=1e-3))
        for name, tensor in expected.items()
    }


def errors_of(
    backend: str,
    model: ModelSettings,
    *,
    length: int,
    device: str,
    dtype: torch.dtype,
    reference: torch.dtype = torch.float32,
) -> dict[str, float]:
    """Return the relative errors of output and gradients of a backend against "eager".

    Args:
        backend: its name.
        model: gives heads and positions; dropout is ignored.
        length: of the rows.
        device: on which it runs.
        dtype: of queries, keys and values.
        reference: the type of queries, keys and values of "eager".
    """
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):  # the run's own weights come from this generator
        torch.manual_seed(0)
        encoding = build_position_encoding(model).to(device)
    shape = (SEQUENCES, length, 3, model.num_heads, model.head_width)
    projected = torch.randn(shape, generator=generator).to(device, dtype)
    upstream_BNSH = torch.randn(
        (SEQUENCES, model.num_heads, length, model.head_width), generator=generator
    ).to(device)
    found = _results(backend, encoding, projected, upstream_BNSH)
    expected = _results("eager", encoding, projected.to(reference), upstream_BNSH)
    return relative_errors(found, expected)


def _results(
    backend: str, encoding: PositionEncoding, projected: Tensor, upstream_BNSH: Tensor
) -> dict[str, Tensor]:
    leaf = projected.detach().requires_grad_()
    terms = encoding.terms(projected.shape[1], device=projected.device, folded=backend == "folded")
    if terms.query_key_NSH is not None:
        # Their gradient is a sum of that of q and k, which cancels for a bias of the projections.
        q_NSH, k_NSH = terms.query_key_NSH
        terms = terms._replace(query_key_NSH=(q_NSH.detach(), k_NSH.detach()))
    q_BNSH, k_BNSH, v_BNSH = leaf.permute(2, 0, 3, 1, 4)
    q_BNSH, k_BNSH = transform_query_key(q_BNSH, k_BNSH, terms)
    output_BNSH = ATTENTION_BACKENDS[backend](
        AttentionInputs(q_BNSH, k_BNSH, v_BNSH, terms, encoding.score_scale)
    )
    names = [name for name, _ in encoding.named_parameters()]
    gradients = torch.autograd.grad(
        (output_BNSH * upstream_BNSH).sum(),
        [leaf, *encoding.parameters()],
        allow_unused=True,  # encodings that are added to the embeddings
    )
    results = {"output": output_BNSH.detach()}
    for name, gradient in zip(["q, k and v", *names], gradients, strict=True):
        if gradient is not None:
            results[f"gradient of {name}"] = gradient
    return results
