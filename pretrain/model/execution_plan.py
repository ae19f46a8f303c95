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
    # Keep the input of each block, its sums and the outputs of its norms in bf16: half the traffic
    # of fp32, and one rounding, of the sum and of its gradient, after each branch.
    bf16_residual_stream: bool = False
    fuses_loss: bool = False  # by our kernels for CPUs
    kernel_problem: str | None = None  # why our kernels for CPUs are not used as planned

    def describe(self) -> str:
        """Return a line for the user."""
        extras = ["blocks compiled"] * self.compiles_blocks
        extras += ["blocks recomputed in the backward pass"] * self.recomputes_blocks
        extras += ["residual stream in bf16"] * self.bf16_residual_stream
        extras += ["loss fused"] * self.fuses_loss
        extras += [] if self.kernel_problem is None else [self.kernel_problem]
        return "; ".join([f"attention {self.attention} ({self.reason})", *extras])


PLAIN = ExecutionPlan()
