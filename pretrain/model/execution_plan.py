"""How a model is executed: which attention, blocks compiled or recomputed, loss fused.

It changes the speed and the memory of a model, not its results beyond rounding.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class ExecutionPlan:
    """The way of execution, and why it was chosen; the default is plain PyTorch."""

    attention: str = "eager"  # name in ATTENTION_BACKENDS
    reason: str = "the reference"  # for this attention
    compiles_blocks: bool = False  # by torch.compile
    # Keep only the input of each block and run it again in the backward pass: a third more time
    # for a fraction of the memory (activation checkpointing).
    recomputes_blocks: bool = False
    fuses_loss: bool = False  # by our kernels for CPUs
    kernel_problem: str | None = None  # why our kernels for CPUs are not used as planned
    compile_problem: str | None = None  # why blocks are not compiled as planned

    def describe(self) -> str:
        """Return a line for the user."""
        extras = ["blocks compiled"] * self.compiles_blocks
        extras += ["blocks recomputed in the backward pass"] * self.recomputes_blocks
        extras += ["loss fused"] * self.fuses_loss
        extras += [] if self.kernel_problem is None else [self.kernel_problem]
        if self.compile_problem is not None:
            extras.append(f"blocks not compiled: {self.compile_problem}")
        return "; ".join([f"attention {self.attention} ({self.reason})", *extras])


PLAIN = ExecutionPlan()
