"""The phases of a training step, by the names that metrics use."""

from typing import Literal

Phase = Literal["data", "forward", "backward", "optimizer", "communication"]

# In the order of a step; "other" is in no phase.
SHARES = ("data", "forward", "backward", "optimizer", "communication", "other")
