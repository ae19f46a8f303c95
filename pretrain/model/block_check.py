"""Whether a fused block computes on this CPU what the reference computes.

Its kernels depend on the CPU and on the compiler that is found here, so each run tries them out
once, at its own width and type, as it does with its attention (attention_check.py).
"""

import torch
from torch import Tensor

from pretrain.config import ModelSettings
from pretrain.model.attention_backends import PositionTerms
from pretrain.model.attention_check import problem_with, relative_errors
from pretrain.model.blocks import Block
from pretrain.model.fused_block import FusedBlock

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
        expected = _results(block, x_BSD, upstream_BSD)
        with torch.autocast("cpu", dtype=dtype, enabled=dtype is not torch.float32):
            under_autocast = _results(fused, x_BSD, upstream_BSD)
        found = relative_errors(under_autocast, expected)
        in_type = _results(fused.to(dtype), x_BSD.to(dtype), upstream_BSD.to(dtype))
        for name, error in relative_errors(in_type, expected).items():
            found[f"{name} in {dtype}"] = error
        return found

    return problem_with(errors, dtype)


def _results(block: Block, x_BSD: Tensor, upstream_BSD: Tensor) -> dict[str, Tensor]:
    leaf_BSD = x_BSD.clone().requires_grad_()
    output_BSD = block(leaf_BSD, PositionTerms(), SCALE)
    names, parameters = zip(*block.named_parameters(), strict=True)
    gradients = torch.autograd.grad(output_BSD, [leaf_BSD, *parameters], upstream_BSD)
    named = zip(("x", *names), gradients, strict=True)
    return {"output": output_BSD.detach()} | {f"gradient of {name}": g for name, g in named}
