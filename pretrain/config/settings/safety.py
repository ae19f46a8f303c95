"""Settings of the response to NaN, overflows, spikes and hangs."""

from typing import Literal

from pydantic import Field

from pretrain.config.settings.section import Section


class TroubleSettings(Section):
    """Response to NaN, infinity, fp16 overflows in a row, loss spikes and hangs."""

    on_not_finite: Literal["stop", "skip", "rewind"] = Field(
        "stop",
        description="at a NaN or infinite loss or gradient, or 20 fp16 overflows in a row: stop; "
        "skip the update (20 in a row stop); or rewind to the newest checkpoint and leave out the "
        "sequences of that step",
    )
    on_spike: Literal["record", "stop", "rewind"] = Field(
        "record", description="at a loss spike: record it, stop, or rewind"
    )
    spike_factor: float = Field(
        2.0, gt=1, description="a spike is a loss above this times the median of the last 100"
    )
    hang_minutes: float = Field(
        8.0,
        gt=0,
        le=1e6,
        description="print all stacks if no step begins for this long; torch ends a job whose "
        "ranks wait for another for 10 minutes (DEEPSPEED_TIMEOUT)",
    )
