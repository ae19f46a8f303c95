"""Compare an attention backend with the reference on this device.

Kernels depend on the GPU, its driver and the versions of several packages, and some have returned
wrong numbers without an error (pytorch#191612, #196678). So each run checks those that it is about
to use once, as it will use them: at its own length and type, under autocast and compiled where it
is. Numbers are compared without dropout; with it they must be finite. Rows of pre-training are
full, so padding is no part of it.
"""

import copy
from typing import NamedTuple

import torch
from torch import Tensor

from data_prep.files.quoting import first_line
from pretrain.config.settings import ModelSettings
from pretrain.model.attention_backends import ATTENTION_BACKENDS, terms_of_pass
from pretrain.model.encoder import build_position_encoding
from pretrain.model.position_encoding import PositionEncoding, PositionTerms
from pretrain.model.torch_attention import AttentionBackend, AttentionInputs, eager

# Relative error of a tensor as a whole. A number is rounded by 2^-9 in bf16 and 2^-12 in fp16, a
# few times on the way to a gradient, and fp32 may be multiplied in TF32, by 2^-12. A wrong index,
# mask or scale changes a tensor by far more.
BOUNDS = {torch.float32: 1e-2, torch.float16: 1e-2, torch.bfloat16: 3e-2}
SEQUENCES, SEED = 2, 0


def disagreement_with_eager(
    backend: str,
    model: ModelSettings,
    *,
    length: int,
    device: str,
    dtype: torch.dtype,
    autocasts: bool = False,
    compiles: bool = False,
) -> str | None:
    """Return how output or gradients of a backend differ from "eager", or None.

    The error of a tensor as a whole is the norm of the difference over that of the expected one. It
    is run with the heads, the positions and the dropout of `model`. Without autocast the weights of
    the positions have the `dtype` of queries, keys and values too.
    """
    # The run's own weights come from these generators.
    gpus = [torch.cuda.current_device()] if device == "cuda" else []
    try:
        with torch.random.fork_rng(devices=gpus):
            torch.manual_seed(SEED)
            encoding = build_position_encoding(model)
            encoding = encoding.to(device, torch.float32 if autocasts else dtype)
            shape = (SEQUENCES, length, 3, model.num_heads, model.head_width)
            projected = torch.randn(shape).to(device, dtype)
            upstream_BSNH = torch.randn(SEQUENCES, length, *shape[3:]).to(device)
            case = _Case(ATTENTION_BACKENDS[backend], encoding, backend, compiles)
            with torch.autocast(device, dtype=dtype, enabled=autocasts):
                found = _results(case, projected, upstream_BSNH, 0.0)
                if model.attention_dropout:
                    dropped = _results(case, projected, upstream_BSNH, model.attention_dropout)
                    if not all(tensor.isfinite().all() for tensor in dropped.values()):
                        return "with dropout its numbers are not finite"
            exact = _Case(eager, copy.deepcopy(encoding).float())
            expected = _results(exact, projected.float(), upstream_BSNH, 0.0)
    except Exception as error:  # of a compiler, a driver or a kernel
        cause = getattr(error, "inner_exception", error)  # in what torch.compile wraps around it
        return f"{type(cause).__name__}: {first_line(cause)[:200]}"
    for name, tensor in expected.items():
        distance = (found[name].to(tensor.dtype) - tensor).norm() / tensor.norm().clamp(min=1e-3)
        if not distance <= BOUNDS[dtype]:  # NaN is not
            return f"its {name} differs from the reference by {float(distance):.1e}"
    return None


class _Case(NamedTuple):
    attend: AttentionBackend
    encoding: PositionEncoding
    backend: str = "eager"
    compiles: bool = False

    def terms(self, projected: Tensor) -> PositionTerms:
        length, device, dtype = projected.shape[1], projected.device, projected.dtype
        terms = terms_of_pass(self.encoding, self.backend, length, device=device, dtype=dtype)
        return self.encoding.of_layer(terms, 0, length)


def _results(
    case: _Case, projected: Tensor, upstream_BSNH: Tensor, dropout: float
) -> dict[str, Tensor]:
    backend, scale = case.attend, case.encoding.score_scale

    def attend(projected: Tensor, terms: PositionTerms) -> Tensor:
        return backend(AttentionInputs(projected, terms, scale, dropout))

    leaf = projected.detach().requires_grad_()
    run = torch.compile(attend, dynamic=False, fullgraph=True) if case.compiles else attend
    terms = case.terms(leaf)
    of_positions = [terms.bias_NSS, *(terms.query_key_NSH or ()), terms.relative_key_RH]
    learned = [term for term in of_positions if term is not None and term.requires_grad]
    output_BNSH: Tensor = run(leaf, terms)
    of_qkv, *others = torch.autograd.grad(
        (output_BNSH.transpose(1, 2) * upstream_BSNH).sum(),  # in the layout that a block gives
        [leaf, *learned],
    )
    results = {"output": output_BNSH.detach(), "gradient of q, k and v": of_qkv}
    # Not of parameters, in which the sum over all pairs can cancel: what is left is rounding.
    if others:
        results["gradient of positions"] = torch.cat([gradient.flatten() for gradient in others])
    return results
