"""Settings of the response to NaN, overflows and spikes."""

from typing import Literal

from pydantic import Field

from pretrain.config.settings.section import Section


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
