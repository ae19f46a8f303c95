"""Compare kernels with their reference on this device: attention backends, and fused blocks.

Kernels depend on the GPU, its driver and the versions of several packages, and some have returned
wrong numbers without an error (pytorch#191612, #196678). So each run checks those that it is about
to use once, at its own length and type.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from pretrain.config.settings import ModelSettings
from pretrain.model.attention_backends import ATTENTION_BACKENDS, AttentionInputs
from pretrain.model.blocks import Block, FusedBlock
from pretrain.model.encoder import build_position_encoding
from pretrain.model.positions import PositionEncoding, PositionTerms, transform_query_key

# Relative error of a tensor as a whole. The products of fp32 may run in TF32.
BOUNDS = {torch.float32: 1e-2, torch.float16: 1e-2, torch.bfloat16: 3e-2}
SEQUENCES = 2


def disagreement_with_eager(
    backend: str, model: ModelSettings, *, length: int, device: str, dtype: torch.dtype
) -> str | None:
    """Return how output or gradients of a backend differ from the reference, or None.

    Arguments as in `errors_of`.
    """
    return problem_with(
        lambda: errors_of(backend, model, length=length, device=device, dtype=dtype), dtype
    )


def problem_with(errors: Callable[[], dict[str, float]], dtype: torch.dtype) -> str | None:
    """Return in one line how a kernel fails or differs from its reference, or None.

    Args:
        errors: runs it and returns the relative errors of its results.
        dtype: of its arithmetic.
    """
    try:
        found = errors()
    except Exception as error:  # of a compiler, a driver or a kernel: it cannot be used here
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


SEQUENCES, LENGTH, SCALE = 2, 24, 1.25


def disagreement_with_block(model: ModelSettings, dtype: torch.dtype) -> str | None:
    """Return what is wrong with fused blocks, or None: they give what `Block` gives.

    Args:
        model: gives the shape and the place of the norms.
        dtype: of the products, under autocast and with weights of this type.
    """

    def errors() -> dict[str, float]:
        without = model.model_copy(update={"dropout": 0.0, "attention_dropout": 0.0})
        with torch.random.fork_rng(devices=[]):  # the run's own weights come from this generator
            torch.manual_seed(0)
            block = Block(without, without.head_width**-0.5)
            fused = FusedBlock(without, without.head_width**-0.5)
            x_BSD, upstream_BSD = torch.randn(2, SEQUENCES, LENGTH, model.width).to(dtype).float()
        block.to(dtype).float()  # weights that both types hold
        fused.load_state_dict(block.state_dict())
        expected = _block_results(block, x_BSD, upstream_BSD)
        with torch.autocast("cpu", dtype=dtype, enabled=dtype is not torch.float32):
            under_autocast = _block_results(fused, x_BSD, upstream_BSD)
        found = relative_errors(under_autocast, expected)
        in_type = _block_results(fused.to(dtype), x_BSD.to(dtype), upstream_BSD.to(dtype))
        for name, error in relative_errors(in_type, expected).items():
            found[f"{name} in {dtype}"] = error
        return found

    return problem_with(errors, dtype)


def _block_results(block: Block, x_BSD: Tensor, upstream_BSD: Tensor) -> dict[str, Tensor]:
    leaf_BSD = x_BSD.clone().requires_grad_()
    output_BSD = block(leaf_BSD, PositionTerms(), SCALE)
    names, parameters = zip(*block.named_parameters(), strict=True)
    gradients = torch.autograd.grad(output_BSD, [leaf_BSD, *parameters], upstream_BSD)
    named = zip(("x", *names), gradients, strict=True)
    return {"output": output_BSD.detach()} | {f"gradient of {name}": g for name, g in named}
