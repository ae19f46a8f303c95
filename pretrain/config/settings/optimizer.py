"""Settings of the batch, the optimizer and the learning rate."""

from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt, field_validator, model_validator

from pretrain.config.settings.section import Section


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

    @field_validator("micro_sequences", mode="before")
    @classmethod
    def _read_none(cls, value: Any) -> Any:
        return "auto" if value is None else value  # as earlier versions wrote run.json


# Of a moment of Adam.
Decay = Annotated[float, Field(ge=0, lt=1)]


class OptimizerSettings(Section):
    """The optimizer, weight decay and clipping."""

    kind: str = Field(
        "auto",
        description="AdamW of torch, deepspeed or apex, or muon (start with 2 to 4 times AdamW's "
        "learning rate); auto: torch, which needs no compiler",
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
        "schedule's",
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
