"""Settings of evaluations and checkpoints."""

from pydantic import Field, PositiveInt

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
    pinned: tuple[PositiveInt, ...] = Field(
        (),
        description="steps whose checkpoint is always written and kept, such as 100000,300000",
    )
