"""Settings of the watchdog, and of the response to NaN, overflows and spikes."""

from typing import Literal

from pydantic import Field, model_validator

from pretrain.config.settings.section import Section, is_changed


class WatchdogSettings(Section):
    """Detection of steps that take too long, see stability/watchdog.py."""

    stuck_after_seconds: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="report a step that takes longer, and an evaluation or a checkpoint that takes "
        "ten times as long; default: 20 times the median step, at least 120",
    )
    end_after_seconds: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="end the job, with status 1, if a step takes longer; default: wait for ever",
    )

    @model_validator(mode="after")
    def _check_order(self) -> "WatchdogSettings":
        stuck, end = self.stuck_after_seconds, self.end_after_seconds
        if stuck is not None and end is not None and end < stuck:
            raise ValueError(
                f"watchdog.end_after_seconds={end:g} is less than "
                f"watchdog.stuck_after_seconds={stuck:g}; a step is reported before it ends the job"
            )
        return self


class TroubleSettings(Section):
    """Response to NaN, infinity, fp16 overflows in a row and loss spikes, see stability/."""

    on_not_finite: Literal["stop", "rewind"] = Field(
        "stop",
        description="at a loss or gradient that is not finite, or a streak of overflows: stop, or "
        "rewind to the newest checkpoint and leave out the rows of that step",
    )
    on_spike: Literal["record", "stop", "rewind"] = Field(
        "record", description="at a loss spike: record and continue, stop, or rewind"
    )
    spike_factor: float = Field(
        2.0, gt=1, description="a loss above this times the median of the last 100 is a spike"
    )
    overflow_streak: int = Field(20, ge=1, description="fp16 overflows in a row that are a streak")
    skip_steps: int = Field(
        1,
        ge=1,
        description="steps whose rows a rewound run leaves out, ending with that of the anomaly; "
        "all of a streak, and the step before a spike, are added",
    )
    max_rewinds: int = Field(
        3, ge=1, description="rewinds to the same checkpoint before the run stops"
    )

    @model_validator(mode="after")
    def _refuse_without_effect(self) -> "TroubleSettings":
        if "rewind" in (self.on_not_finite, self.on_spike):
            return self
        for name in ("skip_steps", "max_rewinds"):
            if is_changed(self, name):
                raise ValueError(
                    f"trouble.{name} is without effect unless trouble.on_not_finite or "
                    "trouble.on_spike is rewind; choose that, or remove it"
                )
        return self
