"""What stands between the matrix products of a block on a CPU, each as one of our kernels.

A product leaves its bias to the kernel that follows it: adding it by itself, and summing its
gradient, are passes over memory too. Between what is read and what is written all is fp32.
Needs `load_cpu_kernels`. Shape letters as in positions.py; C = 3NH, F feed-forward width, R rows.
"""

from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from pretrain.kernels.cpu_build import multiplies

Result = Literal["sum", "wide", "narrow"]


def linear_heads(x_BSD: Tensor, projection: nn.Linear, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values, each BNSH, of the projection to all three."""
    projected_BSC = linear(x_BSD, projection.weight)
    split: tuple[Tensor, Tensor, Tensor] = _Heads.apply(  # type: ignore[no-untyped-call]
        projected_BSC, projection.bias, heads
    )
    return split


def linear(x: Tensor, weight_CI: Tensor) -> Tensor:
    """Return x W^T in the type of x, which is one that autocast leaves as it is.

    The gradient of the weight, a sum over all rows, is rounded to the type of the weight only,
    where there is a kernel for that.
    """
    product: Tensor = _Linear.apply(x, weight_CI)  # type: ignore[no-untyped-call]
    return product


def linear_gelu(x_BSD: Tensor, linear: nn.Linear) -> Tensor:
    """Return GELU(x W^T + b), shape BSF, in the type of x."""
    output_BSF: Tensor = _LinearGelu.apply(  # type: ignore[no-untyped-call]
        x_BSD, linear.weight, linear.bias
    )
    return output_BSF


def normalize(x_BSD: Tensor, norm: nn.LayerNorm, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Return x and its LayerNorm in the type of the product that follows.

    Who goes on with the x that is returned has the gradients of both added by the kernel.
    """
    plan = _Plan(("sum", "narrow"), 1.0, norm.eps, dtype)
    return _apply(plan, x_BSD, None, None, norm.weight, norm.bias)


def add(x_BSD: Tensor, branch_BSD: Tensor, bias_D: Tensor | None, scale: float) -> Tensor:
    """Return x + scale (branch + bias) in the type of x."""
    plan = _Plan(("sum",), scale, 0.0, branch_BSD.dtype)
    (sum_BSD,) = _apply(plan, x_BSD, branch_BSD, bias_D, None, None)
    return sum_BSD


def add_and_normalize(
    x_BSD: Tensor,
    branch_BSD: Tensor,
    bias_D: Tensor | None,
    scale: float,
    norm: nn.LayerNorm,
    *results: Result,
) -> tuple[Tensor, ...]:
    """Return what is asked for of the sum as `add` returns it, and its LayerNorm.

    Args:
        x_BSD: residual stream.
        branch_BSD: in the compute type.
        bias_D: of the branch; None: it has been added.
        scale: of the branch with its bias.
        norm: of the sum.
        results: "sum"; "wide", the norm in the type of x; "narrow", the norm in the compute type.
    """
    plan = _Plan(results, scale, norm.eps, branch_BSD.dtype)
    return _apply(plan, x_BSD, branch_BSD, bias_D, norm.weight, norm.bias)


class _Plan(NamedTuple):
    results: tuple[Result, ...]
    scale: float
    epsilon: float
    computed: torch.dtype


def _apply(plan: _Plan, *tensors: Tensor | None) -> tuple[Tensor, ...]:
    results: tuple[Tensor, ...] = _AddAndNormalize.apply(  # type: ignore[no-untyped-call]
        plan, *tensors
    )
    return results


class _AddAndNormalize(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        plan: _Plan,
        x_BSD: Tensor,
        branch_BSD: Tensor | None,
        branch_bias_D: Tensor | None,
        weight_D: Tensor | None,
        bias_D: Tensor | None,
    ) -> tuple[Tensor, ...]:
        sum_BSD, wide_BSD, narrow_BSD, statistics = torch.ops.tupelo.add_and_normalize(
            x_BSD,
            branch_BSD,
            _float(branch_bias_D),
            plan.scale,
            _float(weight_D),
            _float(bias_D),
            plan.epsilon,
            plan.computed,
            "wide" in plan.results,
            "narrow" in plan.results,
        )
        sum_BSD = x_BSD if sum_BSD is None else sum_BSD  # without a branch, x is normalized
        ctx.set_materialize_grads(False)
        ctx.plan, ctx.has_branch = plan, branch_BSD is not None
        ctx.save_for_backward(sum_BSD, statistics, weight_D)
        found = {"sum": sum_BSD, "wide": wide_BSD, "narrow": narrow_BSD}
        return tuple(found[name] for name in plan.results)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        sum_BSD, statistics, weight_D = ctx.saved_tensors
        given = {
            name: None if gradient is None else gradient.contiguous()
            for name, gradient in zip(ctx.plan.results, gradients, strict=True)
        }
        found = torch.ops.tupelo.add_and_normalize_backward(
            sum_BSD,
            statistics,
            _float(weight_D),
            given.get("sum"),
            given.get("wide"),
            given.get("narrow"),
            ctx.plan.scale,
            ctx.plan.computed,
            ctx.has_branch,
        )
        wanted = zip((None, *found), ctx.needs_input_grad, strict=True)
        return tuple(gradient if is_wanted else None for gradient, is_wanted in wanted)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_CI: Tensor) -> Tensor:
        ctx.weight_dtype = weight_CI.dtype
        weight_CI = weight_CI.to(x.dtype)
        ctx.save_for_backward(x, weight_CI)
        return F.linear(x, weight_CI)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        x, weight_CI = ctx.saved_tensors
        return _linear_gradients(gradients[0], x, weight_CI, ctx.weight_dtype)


def _linear_gradients(
    gradient: Tensor, x: Tensor, weight_CI: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return the gradients of x and of the weight, the latter in this type."""
    gradient_RC, x_RI = gradient.flatten(0, -2), x.flatten(0, -2)
    x_gradient = (gradient_RC @ weight_CI).view_as(x)
    if multiplies(x.dtype):
        weight_gradient_CI = torch.ops.tupelo.weight_gradient(
            gradient_RC.contiguous(), x_RI.contiguous()
        )
    else:
        weight_gradient_CI = gradient_RC.t() @ x_RI
    return x_gradient, weight_gradient_CI.to(dtype)


class _LinearGelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_BSD: Tensor, weight_FD: Tensor, bias_F: Tensor) -> Tensor:
        ctx.weight_dtype = weight_FD.dtype
        weight_FD = weight_FD.to(x_BSD.dtype)
        slopes_BSF = F.linear(x_BSD, weight_FD)  # products, until the kernel overwrites them
        output_BSF: Tensor = torch.ops.tupelo.gelu_(slopes_BSF, bias_F.float())
        ctx.save_for_backward(x_BSD, weight_FD, slopes_BSF)
        return output_BSF

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        x_BSD, weight_FD, slopes_BSF = ctx.saved_tensors
        product_gradient_BSF, bias_gradient_F = torch.ops.tupelo.gelu_backward(
            gradients[0].contiguous(), slopes_BSF
        )
        of_linear = _linear_gradients(product_gradient_BSF, x_BSD, weight_FD, ctx.weight_dtype)
        return *of_linear, bias_gradient_F


class _Heads(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, projected_BSC: Tensor, bias_C: Tensor, heads: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        q_BNSH, k_BNSH, v_BNSH = torch.ops.tupelo.split_heads(projected_BSC, bias_C.float(), heads)
        return q_BNSH, k_BNSH, v_BNSH

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        return *torch.ops.tupelo.merge_heads(*(g.contiguous() for g in gradients)), None


def _float(vector: Tensor | None) -> Tensor | None:
    return None if vector is None else vector.float()
