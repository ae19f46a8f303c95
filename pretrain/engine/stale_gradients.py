"""Gradients that DeepSpeed's ZeRO keeps after an update, and would apply again to skipped blocks.

Without offload, stages 1 and 2 drop their gradients at an update. Stage 3, and the fp32 gradients
of any stage whose optimizer is offloaded to the host, are buffers that are overwritten only for
parameters which a backward pass reaches: a block that is skipped in a step would be updated by its
gradient of an earlier step. The names are those of DeepSpeed 0.19.8.
"""

from typing import Any

from pretrain.config.errors import ConfigError

FLAT_GRADIENTS = "grad_partitions_flat_buffer"  # of stage 3
OFFLOADED_WEIGHTS = {
    1: "single_partition_of_fp32_groups",
    2: "single_partition_of_fp32_groups",
    3: "fp32_partitioned_groups_flat",
}


class StaleGradients:
    """The gradient buffers of a ZeRO optimizer that outlive an update."""

    def __init__(self, optimizer: Any, zero_stage: int, *, offloads: bool) -> None:
        """Find them.

        Args:
            optimizer: of the DeepSpeed engine.
            zero_stage: 0 to 3.
            offloads: whether the state of the optimizer lies on the host.

        Raises:
            ConfigError: the installed DeepSpeed keeps them elsewhere, or the state is on NVMe.
        """
        self._optimizer, self._zero_stage, self._offloads = optimizer, zero_stage, offloads
        needed = [FLAT_GRADIENTS] if zero_stage == 3 else []
        if offloads:
            needed += [OFFLOADED_WEIGHTS[zero_stage], "norm_for_param_grads"]
        if missing := [name for name in needed if not hasattr(optimizer, name)]:
            raise ConfigError(
                f"layer drop at ZeRO stage {zero_stage}{' with offload' if offloads else ''} needs "
                f"the gradient buffer {missing[0]} of DeepSpeed 0.19.8, which the installed one "
                "keeps elsewhere; use stage 1 or 2 without offload"
            )
        if offloads and vars(optimizer).get("swap_optimizer"):
            raise ConfigError(
                "layer drop does not work with offload_optimizer.device=nvme, where gradients of "
                "skipped blocks cannot be cleared; use cpu"
            )

    def clear(self) -> None:
        """Set them to zero; call it between an update and the next backward pass."""
        if self._zero_stage == 3:
            self._optimizer.grad_partitions_flat_buffer.zero_()
        if self._offloads:
            for weights in vars(self._optimizer)[OFFLOADED_WEIGHTS[self._zero_stage]]:
                if weights.grad is not None:
                    weights.grad.zero_()
            # By which gradients are clipped.
            self._optimizer.norm_for_param_grads.clear()
