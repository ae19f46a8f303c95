"""Gradients that ZeRO stage 3 keeps after an update, and would apply again to skipped blocks.

Stages 1 and 2 drop their gradients at an update. Stage 3 has a buffer that is overwritten only for
parameters which a backward pass reaches: a block that is skipped in a step would be updated by its
gradient of an earlier step. The name is that of DeepSpeed 0.19.8. Offloaded optimizers keep theirs
on the host too, and are refused.
"""

from typing import Any

from pretrain.config.errors import ConfigError


class StaleGradients:
    """The gradient buffer of a ZeRO optimizer that outlives an update."""

    def __init__(self, optimizer: Any) -> None:
        """Find it.

        Raises:
            ConfigError: the installed DeepSpeed keeps it elsewhere.
        """
        self._optimizer = optimizer
        if not hasattr(optimizer, "grad_partitions_flat_buffer"):
            raise ConfigError(
                "layer drop at ZeRO stage 3 needs the gradient buffer grad_partitions_flat_buffer "
                "of DeepSpeed 0.19.8, which the installed one keeps elsewhere; use stage 1 or 2"
            )

    def clear(self) -> None:
        """Set it to zero; call it between an update and the next backward pass."""
        self._optimizer.grad_partitions_flat_buffer.zero_()
