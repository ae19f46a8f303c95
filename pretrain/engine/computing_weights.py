"""The weights with which the model computes: whole on each rank, or divided by ZeRO stage 3.

The names of what is divided are those of DeepSpeed 0.19.8.
"""

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as distributed
from torch import Tensor, nn

from pretrain.checkpoint.format import Checkpoint, Piece
from pretrain.distributed.ranks import Ranks


class ComputingWeights:
    """The weights of a module that DeepSpeed trains; every rank must call each method."""

    def __init__(
        self, module: nn.Module, optimizer: Any, ranks: Ranks, *, are_divided: bool
    ) -> None:
        """Hold what DeepSpeed returned; at ZeRO stage 3 each rank has a part of each weight."""
        self._module, self._optimizer, self._ranks = module, optimizer, ranks
        self._are_divided = are_divided

    def are_finite(self) -> bool:
        """Return whether every weight, on all ranks, is a finite number; waits for the device."""
        weights: Iterable[Tensor] = self._module.parameters()
        if self._are_divided:
            weights = (self._own_part(parameter) for parameter in weights)
        finite = [torch.isfinite(weight.detach()).all() for weight in weights]
        bad = (~torch.stack(finite)).any().float()
        distributed.all_reduce(bad)
        return not float(bad)

    @torch.no_grad()
    def restore(self, checkpoint: Checkpoint) -> None:
        """Set the weights, in their type, to those of a checkpoint of any number of ranks."""
        if not self._are_divided:
            for name, parameter in self._module.named_parameters():
                parameter.copy_(checkpoint.whole(name))
            return
        self._optimizer._partition_all_parameters()  # an evaluation has left them whole
        divided: Iterable[tuple[str, Any]] = self._module.named_parameters()
        for name, parameter in divided:
            if size := (part := self._own_part(parameter)).numel():
                start = self._ranks.rank * parameter.ds_tensor.numel()
                part.copy_(checkpoint.read("weight", name, Piece(start, size)))
        self.gather_small()

    def gather_small(self) -> None:
        """Gather what ZeRO-3 keeps whole on each rank, as it does after an update.

        DeepSpeed 0.19.8 omits it after a step without one, and the next backward pass may then
        end in a tracing error.
        """
        if self._are_divided and (small := self._optimizer.persistent_parameters):
            small[0].all_gather(small)

    def _own_part(self, parameter: Any) -> Tensor:
        """Return the part of a divided weight on this rank, without its padding."""
        part: Tensor = parameter.ds_tensor.detach().view(-1)
        left = parameter.ds_numel - self._ranks.rank * part.numel()
        return part[: max(0, left)]
