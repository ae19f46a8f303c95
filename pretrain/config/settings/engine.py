"""Settings of how DeepSpeed runs the training."""

from typing import Literal

from pydantic import Field

from pretrain.config.settings.section import Section


class EngineSettings(Section):
    """How DeepSpeed and the machine execute it."""

    ds_config: str = Field(
        "auto",
        description="DeepSpeed JSON: a path, or a name in ds_configs/; auto: bf16 where the "
        "device has it, else fp16 on CUDA and fp32 on CPU; ZeRO-0 where model and optimizer fit "
        "into half the memory, else ZeRO-1",
    )
    attention: Literal["auto", "eager", "fused", "sdpa", "triton"] = Field(
        "auto", description="attention implementation, see docs/SPEED.md"
    )
    cpu_kernels: Literal["auto", "on", "off"] = Field(
        "auto",
        description="our C++ kernels for attention and loss on a CPU; auto: where a compiler can "
        "build them (ten seconds, once)",
    )
    compile_blocks: Literal["auto", "on", "off"] = Field(
        "auto",
        description="torch.compile each block and the loss; auto: on CUDA at ZeRO stages 0 to 2, "
        "if a trial at the start succeeds",
    )
    recompute_blocks: bool = Field(
        False,
        description="activation checkpointing: keep only the input of each block; a third more "
        "time, a fraction of the memory",
    )
