"""Muon for matrices and AdamW for all other parameters, as one optimizer.

Muon (Jordan 2024, https://kellerjordan.github.io/posts/muon) replaces the momentum of a matrix by
about the nearest orthogonal matrix, by five Newton-Schulz iterations in bf16. The computation is
torch's (`torch.optim.Muon`).
"""

import torch
from torch import Tensor, nn


class MuonWithAdamW(torch.optim.Optimizer):
    """`torch.optim.Muon` over some matrices beside a `torch.optim.AdamW` over the rest.

    The first parameter group is Muon's, the others are those of AdamW. One learning rate serves
    both: the update of a matrix m x n is scaled by 0.2 sqrt(max(m, n)), which gives it about the
    root mean square of AdamW's (Liu et al. 2025, "Muon is Scalable for LLM Training", Sec. 2.2).

    A weight that stacks several projections (queries, keys and values, 3D x D) is orthogonalised
    projection by projection: they are different maps, and Jordan reports better results than for
    the stack. As one matrix, the projection with the largest gradient would also dominate the
    norm by which all of them are divided before the iterations.

    A matrix whose gradient is zero, as of a block that layer drop skips in a whole step, moves as
    far as any other, along its momentum: dividing by the norm undoes the decay of the momentum.

    `grad_scale` and `found_inf` are those of torch's GradScaler: gradients are divided by the one,
    and if the other is not zero, nothing changes. Unlike in torch's AdamW that waits for the
    device.
    """

    def __init__(
        self,
        matrices: list[tuple[nn.Parameter, int]],
        adamw: torch.optim.AdamW,
        *,
        weight_decay: float,
    ) -> None:
        """Join both.

        Args:
            matrices: weights, each with the number of projections that it stacks.
            adamw: over all other parameters.
            weight_decay: of the matrices.
        """
        self.grad_scale: Tensor | None = None
        self.found_inf: Tensor | None = None
        group = {"params": [weight for weight, _ in matrices], "weight_decay": weight_decay}
        super().__init__(
            [{**group, "lr": 0.0, "learning_rate_factor": 1.0}, *adamw.param_groups], {}
        )
        self._matrix_group = self.param_groups[0]
        adamw.state = self.state
        self._adamw = adamw
        # Muon is given the projections, as parameters that share the memory of the weights.
        self._projections = [
            (weight, [nn.Parameter(part) for part in weight.detach().chunk(count)])
            for weight, count in matrices
        ]
        parts = [part for _, parts in self._projections for part in parts]
        self._muon = torch.optim.Muon(parts, lr=0.0, adjust_lr_fn="match_rms_adamw")

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update all parameters, or none if `found_inf` is set."""
        if self.found_inf is not None and float(self.found_inf):
            return
        self._adamw.grad_scale = self.grad_scale  # type: ignore[attr-defined]
        self._adamw.step()
        for name in ("lr", "weight_decay"):
            self._muon.param_groups[0][name] = self._matrix_group[name]
        for weight, parts in self._projections:
            self._set_parts(weight, parts)
        self._muon.step()  # type: ignore[no-untyped-call]

    def _set_parts(self, weight: nn.Parameter, parts: list[nn.Parameter]) -> None:
        """Point the projections to the weight, its gradient and its momentum of this step.

        At every step: the engine may have moved the weight, and a checkpoint replaced the momentum.
        """
        if weight.grad is None:
            for part in parts:
                part.grad = None
            return
        if self.grad_scale is not None:
            weight.grad.div_(self.grad_scale)
        if "momentum_buffer" not in self.state[weight]:
            self.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
        whole = (weight.detach(), weight.grad, self.state[weight]["momentum_buffer"])
        pieces = zip(*(tensor.chunk(len(parts)) for tensor in whole), strict=True)
        for part, (values, gradient, momentum) in zip(parts, pieces, strict=True):
            part.data, part.grad = values, gradient
            self._muon.state[part]["momentum_buffer"] = momentum
