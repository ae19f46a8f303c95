"""The output projection and its cross-entropy as one operation.

Computed in steps, this holds the largest tensors of a training step: logits_MV in fp32, their
log-softmax, a one-hot gradient, and the gradient of the logits. None is needed whole: logits are
overwritten with the gradient of the loss, and a single tensor MV in the compute type is held. Three
methods do that:

    sliced    torch's operations, a few rows at a time, while these are in a cache; everywhere
    kernel    our kernel for CPUs, see cpu_kernels.py
    compiled  by torch.compile, for GPUs. Its kernels read the bf16 logits three times and write
              them once, where the operations of "sliced" pass over matrices of fp32 ten times. For
              4,928 predictions of 32,768 words that is 1.3 GB of traffic and not 6.5: by this
              count 1.3 ms less at 4 TB/s, 2 % of a step of BERT-Base. Not measured on a GPU.

A package with a kernel of its own (Liger) would read and write each once less, 0.1 ms of the same
step, for one more dependency that CPUs cannot test.
(`torch.nn.functional.linear_cross_entropy`, new in torch 2.13, rounds the loss of bf16 logits to
steps of 0.06, and its chunked form took eleven times as long on a CPU.)

Shape letters: M predicted positions, V vocabulary, D model width, R rows of a slice.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from pretrain.model.kernels.cpu_kernels import cross_entropy_

# Of fp32 logits per slice: small enough for a CPU's cache, large enough to keep a GPU busy.
SLICE_BYTES = {"cpu": 2**22, "cuda": 2**28}

Method = Literal["sliced", "kernel", "compiled"]


def linear_cross_entropy(
    hidden_MD: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor,
    labels_M: Tensor,
    *,
    ignored: int,
    method: Method = "sliced",
) -> Tensor:
    """Return the summed cross-entropy, in nats and fp32, of the logits `hidden weight^T + bias`.

    The products are computed in the type of autocast where it is on, else in that of `hidden_MD`;
    log-softmax and loss in fp32. The gradient of the weights has their own type. A label that is
    `ignored` contributes neither loss nor gradient.
    """
    kind = hidden_MD.device.type
    if torch.is_autocast_enabled(kind):
        hidden_MD = hidden_MD.to(torch.get_autocast_dtype(kind))
    loss: Tensor = _LinearCrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden_MD, weight_VD, bias_V, labels_M, ignored, method
    )
    return loss


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_MD: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor,
        labels_M: Tensor,
        ignored: int,
        method: Method,
    ) -> Tensor:
        with torch.autocast(hidden_MD.device.type, enabled=False):
            cast_VD = weight_VD.to(hidden_MD.dtype)
            logits_MV = F.linear(hidden_MD, cast_VD)
            turn = _METHODS[method]
            loss, bias_gradient_V = turn(logits_MV, bias_V.float(), labels_M, ignored)
        ctx.save_for_backward(hidden_MD, cast_VD, logits_MV, bias_gradient_V.to(bias_V.dtype))
        ctx.weight_type = weight_VD.dtype
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        (gradient,) = gradients
        hidden_MD, weight_VD, logit_gradient_MV, bias_gradient_V = ctx.saved_tensors
        with torch.autocast(hidden_MD.device.type, enabled=False):
            # The smaller factor of each product is scaled: a pass over M x D instead of V x D.
            hidden_gradient_MD = _scaled(logit_gradient_MV @ weight_VD, gradient)
            weight_gradient_VD = logit_gradient_MV.t() @ _scaled(hidden_MD, gradient)
        weight_gradient_VD = weight_gradient_VD.to(ctx.weight_type)
        return hidden_gradient_MD, weight_gradient_VD, bias_gradient_V * gradient, None, None, None


def _scaled(states: Tensor, factor: Tensor) -> Tensor:
    """Return a product that is rounded once: on a GPU `*` rounds an fp32 factor to bf16 before."""
    return (states.float() * factor).to(states.dtype)


def _turn_by_kernel(
    logits_MV: Tensor, bias_V: Tensor, labels_M: Tensor, ignored: int
) -> tuple[Tensor, Tensor]:
    """Do the same as `_turn_by_slices`."""
    losses_M, bias_gradient_V = cross_entropy_(logits_MV, bias_V, labels_M, ignored)
    return losses_M.sum(), bias_gradient_V


def _turn_by_slices(
    logits_MV: Tensor, bias_V: Tensor, labels_M: Tensor, ignored: int
) -> tuple[Tensor, Tensor]:
    """Overwrite logits without bias with d loss / d logits = softmax - one-hot.

    Returns:
        The loss, and d loss / d bias_V.
    """
    counted_M1 = labels_M.ne(ignored).unsqueeze(1)
    chosen_M1 = labels_M.unsqueeze(1).masked_fill(~counted_M1, 0)
    loss = torch.zeros((), dtype=torch.float32, device=logits_MV.device)
    bias_gradient_V = torch.zeros_like(bias_V)
    rows = max(1, SLICE_BYTES.get(logits_MV.device.type, 2**28) // (4 * logits_MV.shape[1]))
    for slice_RV, chosen_R1, counted_R1 in zip(
        *(torch.split(whole, rows) for whole in (logits_MV, chosen_M1, counted_M1)), strict=True
    ):
        biased_RV = slice_RV + bias_V
        gradient_RV = torch.softmax(biased_RV, dim=-1)
        # From the largest logit and its probability, at least 1 / V: a second exponential of
        # every logit would take longer than all else here.
        logsumexp_R1 = biased_RV.amax(1, keepdim=True) - gradient_RV.amax(1, keepdim=True).log()
        loss += ((logsumexp_R1 - biased_RV.gather(1, chosen_R1)) * counted_R1).sum()
        gradient_RV.scatter_add_(1, chosen_R1, gradient_RV.new_full((), -1.0).expand_as(chosen_R1))
        slice_RV.copy_(gradient_RV.mul_(counted_R1))
        bias_gradient_V += gradient_RV.sum(0)
    return loss, bias_gradient_V


def _turn_compiled(
    logits_MV: Tensor, bias_V: Tensor, labels_M: Tensor, ignored: int
) -> tuple[Tensor, Tensor]:
    """Do the same as `_turn_by_slices`."""
    loss = _compiled_turn()(logits_MV, bias_V, labels_M, ignored)
    # In the compiled function the sum would keep a second matrix MV.
    return loss, logits_MV.sum(0, dtype=torch.float32)


@cache
def _compiled_turn() -> Callable[..., Tensor]:
    return torch.compile(_turn_whole, dynamic=False, fullgraph=True)


def _turn_whole(logits_MV: Tensor, bias_V: Tensor, labels_M: Tensor, ignored: int) -> Tensor:
    """Do the same as `_turn_by_slices`, without slices and the gradient of the bias.

    Of reductions along the rows and elementwise operations only, which fuse: no matrix is held
    but the logits.
    """
    counted_M1 = labels_M.ne(ignored).unsqueeze(1)
    chosen_M1 = labels_M.unsqueeze(1).masked_fill(~counted_M1, 0)
    biased_MV = logits_MV.float() + bias_V
    largest_M1 = biased_MV.amax(1, keepdim=True)
    logsumexp_M1 = largest_M1 + (biased_MV - largest_M1).exp().sum(1, keepdim=True).log()
    losses_M1 = (logsumexp_M1 - biased_MV.gather(1, chosen_M1)) * counted_M1
    is_chosen_MV = torch.arange(logits_MV.shape[1], device=logits_MV.device) == chosen_M1
    gradient_MV = (biased_MV - logsumexp_M1).exp() - is_chosen_MV.float()
    logits_MV.copy_(gradient_MV * counted_M1)
    return losses_M1.sum()


_METHODS: dict[Method, Callable[[Tensor, Tensor, Tensor, int], tuple[Tensor, Tensor]]] = {
    "sliced": _turn_by_slices,
    "kernel": _turn_by_kernel,
    "compiled": _turn_compiled,
}
