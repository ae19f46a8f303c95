"""Settings of evaluations and checkpoints."""

from pydantic import Field, PositiveInt, model_validator

from pretrain.config.settings.section import Section


class EvaluationSettings(Section):
    """Held-out loss, always at full depth."""

    every_steps: int = Field(1000, ge=1, description="steps between evaluations")
    rows: int = Field(4096, ge=1, description="held-out rows read, at most")


class CheckpointSettings(Section):
    """When checkpoints are written, and which are kept."""

    every_steps: int = Field(10_000, ge=1, description="steps between checkpoints")
    keep_last: int | None = Field(None, ge=1, description="older ones are removed; none: keep all")
    keep_every: int | None = Field(
        None, ge=1, description="keep those of every so many steps too; with keep_last only"
    )
    pinned: tuple[PositiveInt, ...] = Field(
        (),
        description="steps whose checkpoint is always written and kept; several with commas, such "
        "as 100000,300000",
    )
    background: bool = Field(
        True, description="write while training continues; takes 12 bytes of memory per parameter"
    )

    @model_validator(mode="after")
    def _refuse_without_effect(self) -> "CheckpointSettings":
        if self.keep_every is not None and self.keep_last is None:
            raise ValueError(
                f"checkpoint.keep_every={self.keep_every} is without effect while all are kept; "
                "give checkpoint.keep_last too, or remove it"
            )
        return self
