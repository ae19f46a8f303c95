"""Settings of how DeepSpeed runs the training."""

from typing import Literal

from pydantic import Field

from pretrain.config.settings.section import Section


class EngineSettings(Section):
    """How DeepSpeed runs it."""

    ds_config: str = Field(
        "auto",
        description="DeepSpeed JSON: a path, or a name in ds_configs/; auto: bf16 where the "
        "device has it, else fp16 on CUDA and fp32 on CPU; ZeRO-0 where model and optimizer fit "
        "into half the memory, else ZeRO-1",
    )
    attention: Literal["auto", "eager", "fused", "sdpa", "folded", "triton"] = Field(
        "auto", description="how attention is computed, see model/attention_backends.py"
    )
    cpu_kernels: Literal["auto", "on", "off"] = Field(
        "auto",
        description="our C++ kernels for attention and loss on a CPU; auto: where there is a "
        "compiler to build them, once, in some ten seconds",
    )
    compile_blocks: Literal["auto", "on", "off"] = Field(
        "auto",
        description="torch.compile each block and the loss; auto: on CUDA where a trial at the "
        "start succeeds, but not at ZeRO stage 3",
    )
    recompute_blocks: bool = Field(
        False,
        description="activation checkpointing: keep the input of each block only; a third more "
        "time, a fraction of the memory",
    )
    bf16_residual_stream: bool = Field(
        False,
        description="under bf16 autocast, round the sums of the blocks to bf16 instead of keeping "
        "them in fp32; on CUDA with compiled blocks only",
    )
