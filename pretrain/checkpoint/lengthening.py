"""A run that continues for more steps, or hours, than it was started for.

* stretch: the schedules of the new length apply from here on. It is the run that would have been
  planned with this length, except for the steps that are taken.
* restart: the schedules begin anew at this step: warm-up and decay, and the fall of theta, over the
  steps or hours that are left.

Weights, optimizer state and the order of the samples continue in both.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from pretrain.config.settings import RunSettings

How = Literal["stretch", "restart"]
WAYS: tuple[How, How] = ("stretch", "restart")


class Lengthening(NamedTuple):
    """What a run is lengthened by."""

    setting: str  # "steps" or "hours"
    before: float
    how: How
    settings: RunSettings  # of the longer run

    def describe(self) -> str:
        """Return it in words."""
        now = self.settings.steps if self.setting == "steps" else self.settings.hours
        return (
            f"lengthened from {self.before:,} to {now:,} {self.setting}, schedules "
            f"{'stretched' if self.how == 'stretch' else 'restarted'}"
        )


def longer_setting(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Return the setting by which a run becomes longer, "steps" or "hours"; None: it does not.

    Args:
        before: settings of the run, as `flat` returns them.
        now: those that are asked for.
    """
    if (before["hours"] is None) != (now["hours"] is None):
        return None
    # In a run of given hours, `steps` is a unit.
    name = "steps" if now["hours"] is None else "hours"
    return name if now[name] > before[name] else None


def lengthened(settings: RunSettings, *, how: How, step: int) -> RunSettings:
    """Return the settings of a run that continues from the checkpoint of `step` to a new end."""
    if how == "stretch" or step == 0:
        return settings
    restarts = (*(known for known in settings.restarts_after if known < step), step)
    return settings.model_copy(update={"restarts_after": restarts})
