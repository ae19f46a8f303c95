"""The forward method of a block that layer drop may skip."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from pretrain.config.errors import ConfigError


class DroppedForward:
    """The forward method of a block under layer drop; a deep copy of it is the plain one."""

    def __init__(self, scale: Callable[[], float], block: nn.Module) -> None:
        """Wrap the method of a block, given what returns 0 to skip it, else its 1/p."""
        self._scale, self._block = scale, block
        self._forward = block.forward
        self._replaced = vars(block).get("forward")  # such as one that accelerate has put there
        # By the flags of a call: the length of the tuple that the block returns, None: a tensor.
        self._lengths: dict[tuple[Any, ...], int | None] = {}

    def put(self) -> None:
        """Stand beside the method of the class: a submodule would change the names of weights."""
        vars(self._block)["forward"] = self

    def remove(self) -> None:
        """Leave the block as it was, if nobody has replaced the method since."""
        if vars(self._block).get("forward") is not self:
            return
        del vars(self._block)["forward"]
        if self._replaced is not None:
            vars(self._block)["forward"] = self._replaced

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy.deepcopy(self._forward, memo)

    # torch.compile would compile a graph for every drop mask and every scale; so it
    # compiles the blocks one by one.
    @torch.compiler.disable(recursive=False)  # type: ignore[untyped-decorator, no-untyped-call]
    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Run the block, or skip it."""
        if not self._block.training:
            return self._forward(*inputs, **named)
        scale = self._scale()
        x: Tensor = inputs[0] if inputs else named["hidden_states"]
        # By which the output may differ, such as output_attentions.
        bools = [(name, value) for name, value in named.items() if isinstance(value, bool)]
        flags = (*[value for value in inputs if isinstance(value, bool)], *bools)
        if scale == 0:
            if flags not in self._lengths:
                # It runs once; no random number of the run is consumed.
                with torch.random.fork_rng([x.device] if x.is_cuda else []), torch.no_grad():
                    output = self._forward(*inputs, **named)
                self._lengths[flags] = _length(output, x, self._block)
            length = self._lengths[flags]
            return x if length is None else (x, *[None] * (length - 1))
        output = self._forward(*inputs, **named)
        self._lengths[flags] = _length(output, x, self._block)
        if scale == 1:
            return output
        if isinstance(output, Tensor):
            return _rescaled(x, output, scale)
        return (_rescaled(x, output[0], scale), *output[1:])


def _rescaled(x: Tensor, output: Tensor, scale: float) -> Tensor:
    return output + (output - x) * (scale - 1)


def _length(output: Any, x: Tensor, block: nn.Module) -> int | None:
    """Return the length of the tuple that a block returned; None: it returned a tensor."""
    states = output[0] if isinstance(output, tuple) and output else output
    if not isinstance(states, Tensor) or states.shape != x.shape:
        found = list(states.shape) if isinstance(states, Tensor) else type(states).__name__
        raise ConfigError(
            f"a {type(block).__name__} maps hidden states of shape {list(x.shape)} to {found}; "
            "layer drop needs blocks that return states of the same shape, alone or first in a "
            "tuple"
        )
    return len(output) if isinstance(output, tuple) else None
