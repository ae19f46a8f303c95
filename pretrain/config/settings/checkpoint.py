"""Settings of evaluations and checkpoints."""

from pydantic import Field, PositiveInt, model_validator

from pretrain.config.settings.section import Section


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
    keep_every: int | None = Field(
        None, ge=1, description="with keep_last: also keep those at multiples of this many steps"
    )
    pinned: tuple[PositiveInt, ...] = Field(
        (),
        description="steps whose checkpoint is always written and kept, such as 100000,300000",
    )
    background: bool = Field(
        True, description="write while training continues; takes 12 bytes of memory a parameter"
    )

    @model_validator(mode="after")
    def _refuse_without_effect(self) -> "CheckpointSettings":
        if self.keep_every is not None and self.keep_last is None:
            raise ValueError(
                f"checkpoint.keep_every={self.keep_every} has no effect while all are kept; "
                "give checkpoint.keep_last too, or remove it"
            )
        return self
