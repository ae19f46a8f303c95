"""Settings of the response to NaN, overflows, spikes and hangs."""

from typing import Literal

from pydantic import Field

from pretrain.config.settings.section import Section


class TroubleSettings(Section):
    """Response to NaN, infinity, fp16 overflows in a row, loss spikes and hangs."""

    on_not_finite: Literal["stop", "skip", "rewind"] = Field(
        "stop",
        description="at a loss or gradient that is not finite, or a streak of fp16 overflows: "
        "stop; skip the update, and stop after 20 in a row; or rewind to the newest checkpoint and "
        "train without the sequences of that step",
    )
    on_spike: Literal["record", "stop", "rewind"] = Field(
        "record", description="at a loss spike: record and continue, stop, or rewind"
    )
    spike_factor: float = Field(
        2.0, gt=1, description="a loss above this times the median of the last 100 is a spike"
    )
    hang_minutes: float = Field(
        8.0,
        gt=0,
        le=1e6,
        description="print the stacks of all threads if no step begins for so long; torch ends a "
        "job that waits for another rank for 10 minutes (DEEPSPEED_TIMEOUT)",
    )
