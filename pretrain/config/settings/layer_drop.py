"""Settings of progressive layer drop."""

from typing import Annotated, Literal

from pydantic import Field, PositiveInt, model_validator

from data_prep.settings import Section, is_changed

# A keep ratio.
Share = Annotated[float, Field(gt=0, le=1)]

# What a schedule of layer drop does not read.
UNUSED_BY_SCHEDULE = {
    "none": ("theta_bar", "gamma", "stages", "depth_profile", "rescale", "compat"),
    "progressive": ("stages",),
    **dict.fromkeys(("constant", "linear_up", "linear_down"), ("gamma", "stages")),
    "reverse": ("stages",),
    "stages": ("theta_bar", "gamma", "depth_profile"),
}


class LayerDropSettings(Section):
    """Progressive layer drop."""

    schedule: str = Field(
        "none",
        description="keep ratio over the run: progressive (PLD) and linear_down get shallower; "
        "reverse, linear_up and stages (RaPTr) get deeper; constant; none",
    )
    theta_bar: Share = Field(
        0.5,
        description="lowest keep ratio of the last block: at the end, or at the start if depth "
        "grows",
    )
    gamma: Annotated[float, Field(gt=0)] | Literal["auto"] = Field(
        "auto",
        description="rate of the exponential decay; auto: 100 / steps, with schedule=reverse "
        "5 / steps",
    )
    stages: tuple[Share, ...] = Field(
        (1 / 2, 2 / 3, 5 / 6, 1.0),
        min_length=1,
        description="with schedule=stages: mean share of blocks that run, in equal parts of the "
        "run",
    )
    depth_profile: Literal["linear", "uniform"] = Field(
        "linear",
        description="linear: deeper blocks are kept less often, as in the paper; uniform: all "
        "equally often; the mean is the same",
    )
    draw_per: Literal["micro_batch", "step"] | PositiveInt = Field(
        "micro_batch",
        description="when a drop mask is drawn: per micro-batch; or per step, equal at any world "
        "size, or so many of them",
    )
    rescale: bool = Field(True, description="divide a kept branch by its keep probability")
    compat: Literal["none", "deepspeed"] = Field(
        "none", description="deepspeed: as bing_bert, including its bugs"
    )

    @model_validator(mode="after")
    def _refuse_without_effect(self) -> "LayerDropSettings":
        for name in UNUSED_BY_SCHEDULE.get(self.schedule, ()):
            if is_changed(self, name):
                raise ValueError(
                    f"layer_drop.{name} has no effect with layer_drop.schedule="
                    f"{self.schedule!r}; choose a schedule, such as progressive, or remove it"
                )
        return self

    @property
    def draws(self) -> int | None:
        """Return the number of drop masks of a step; None: it is that of the micro-batches."""
        if isinstance(self.draw_per, int):
            return self.draw_per
        return 1 if self.draw_per == "step" else None
