"""Settings of training: batch, optimizer, evaluation, checkpoints, faults, execution."""

from typing import Annotated, Literal

from pydantic import Field, PositiveInt, model_validator

from data_prep.settings import Section


class BatchSettings(Section):
    """Sequences per optimizer step and micro-batch."""

    global_sequences: int = Field(
        256, ge=1, description="sequences per optimizer step, over all ranks"
    )
    micro_sequences: PositiveInt | Literal["auto"] = Field(
        "auto",
        description="sequences per micro-batch and rank; auto: the most that fit, on a GPU at most "
        "65,536 tokens",
    )


# Of a moment of Adam.
Decay = Annotated[float, Field(ge=0, lt=1)]


class OptimizerSettings(Section):
    """The optimizer, weight decay and clipping."""

    kind: str = Field(
        "auto",
        description="AdamW of torch, deepspeed or apex; auto: torch, which needs no compiler",
    )
    betas: tuple[Decay, Decay] = Field((0.9, 0.999), description="AdamW's beta1 and beta2")
    epsilon: float = Field(1e-6, gt=0, description="AdamW's epsilon")
    bias_correction: bool = Field(
        True, description="AdamW's bias correction; BERT and bing_bert have none"
    )
    weight_decay: float = Field(0.01, ge=0, description="decoupled weight decay")
    decay_everything: bool = Field(
        False, description="decay biases and norms too, as the TUPE authors' code does"
    )
    position_rate: float = Field(
        1.0,
        gt=0,
        description="learning rate of the table of absolute positions, as a multiple of the "
        "schedule's",
    )
    relative_rate: float = Field(
        1.0,
        gt=0,
        description="learning rate of the tables of relative positions, as a multiple of the "
        "schedule's; 1 as published, best here 16 to 64",
    )
    max_gradient_norm: float | None = Field(1.0, gt=0, description="gradient clipping; none: off")


class LearningRateSettings(Section):
    """Learning rate by step."""

    schedule: str = Field("warmup_linear", description="what follows the warm-up")
    peak: float = Field(
        1e-4, gt=0, description="peak learning rate, reached at the end of the warm-up"
    )
    warmup_ratio: float = Field(0.01, ge=0, lt=1, description="warm-up, as a share of the steps")
    decay_rate: float | None = Field(
        None, gt=0, lt=1, description="factor per decay_steps, with warmup_linear_decay_exp"
    )
    decay_steps: int | None = Field(
        None, ge=1, description="steps per decay_rate, with warmup_linear_decay_exp"
    )

    @model_validator(mode="after")
    def _check_decay(self) -> "LearningRateSettings":
        exponential = self.schedule == "warmup_linear_decay_exp"
        for name in ("decay_rate", "decay_steps"):
            given = self.model_dump()[name] is not None
            if given != exponential:
                raise ValueError(
                    f"learning_rate.{name} {'is missing' if exponential else 'has no effect'} "
                    f"with learning_rate.schedule={self.schedule!r}; "
                    f"{'give it' if exponential else 'set it to none'}"
                )
        return self


class EvaluationSettings(Section):
    """Held-out loss, always at full depth."""

    every_steps: int = Field(1000, ge=1, description="steps between evaluations")
    rows: int = Field(4096, ge=1, description="most held-out sequences to evaluate on")


class CheckpointSettings(Section):
    """When checkpoints are written, and which are kept."""

    every_steps: int = Field(10_000, ge=1, description="steps between checkpoints")
    keep_last: int | None = Field(
        None, ge=1, description="number of newest checkpoints to keep; none: all"
    )
    pinned: tuple[PositiveInt, ...] = Field(
        (), description="steps whose checkpoint is always written and kept, such as 100000,300000"
    )


class TroubleSettings(Section):
    """Response to NaN, infinity, fp16 overflows in a row, and loss spikes."""

    on_not_finite: Literal["stop", "skip", "rewind"] = Field(
        "stop",
        description="at a NaN or infinite loss or gradient, or 20 fp16 overflows in a row: stop; "
        "skip the update (20 in a row stop); or rewind to the newest checkpoint and leave out the "
        "sequences of that step",
    )
    on_spike: Literal["record", "stop", "rewind"] = Field(
        "record",
        description="at a loss above twice the median of the last 100: record it, stop, or rewind",
    )


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
