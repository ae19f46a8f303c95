"""How a model is executed: which attention, blocks compiled or recomputed, loss fused.

It changes the speed and the memory of a model, not its results beyond rounding.
"""

from dataclasses import dataclass

from pretrain.model.kernels.cross_entropy import Method


@dataclass(frozen=True)
class ExecutionPlan:
    """The way of execution, and why it was chosen; the default is plain PyTorch."""

    attention: str = "eager"  # name in ATTENTION_BACKENDS
    reason: str = "the reference"  # for this attention
    # By torch.compile; the loss as well, unless a kernel of ours computes it.
    compiles_blocks: bool = False
    # Keep only the input of each block and run it again in the backward pass: a third more time
    # for a fraction of the memory (activation checkpointing).
    recomputes_blocks: bool = False
    fuses_loss: bool = False  # by our kernels for CPUs
    kernel_problem: str | None = None  # why our kernels for CPUs are not used as planned
    compile_problem: str | None = None  # why blocks are not compiled as planned

    @property
    def loss_method(self) -> Method:
        """Return how the cross-entropy is computed, see kernels/cross_entropy.py."""
        if self.fuses_loss:
            return "kernel"
        return "compiled" if self.compiles_blocks else "sliced"

    def describe(self) -> str:
        """Return a line for the user."""
        compiled = "blocks compiled" if self.fuses_loss else "blocks and loss compiled"
        extras = [compiled] * self.compiles_blocks
        extras += ["blocks recomputed in the backward pass"] * self.recomputes_blocks
        extras += ["loss fused"] * self.fuses_loss
        extras += [] if self.kernel_problem is None else [self.kernel_problem]
        if self.compile_problem is not None:
            extras.append(f"blocks not compiled: {self.compile_problem}")
        return "; ".join([f"attention {self.attention} ({self.reason})", *extras])


PLAIN = ExecutionPlan()
