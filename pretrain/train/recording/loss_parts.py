"""The parts of a loss that is a sum: on the device until a line of metrics is due."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


class LossParts:
    """Adds up total and number of each part, over the steps since they were fetched."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}

    def add(self, parts: Mapping[str, Tensor]) -> None:
        """Add those of a step, [2] each; see `StepResult.parts`."""
        for name, sums in parts.items():
            self._sums[name] = self._sums[name] + sums if name in self._sums else sums

    def fetch_into(
        self, totals: dict[str, list[float]], mean_over_ranks: Callable[[Tensor], list[float]]
    ) -> None:
        """Add total and number of each part to `totals`; a collective where there are parts."""
        found, self._sums = self._sums, {}
        if not found:
            return
        numbers = iter(mean_over_ranks(torch.cat(list(found.values()))))
        for name, total, number in zip(found, numbers, numbers, strict=True):
            before = totals.get(name, [0.0, 0.0])
            totals[name] = [before[0] + total, before[1] + number]


def mean_parts(totals: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Return the field "parts" of a line of metrics; nothing of a loss without parts."""
    means = {name: total / number if number else 0.0 for name, (total, number) in totals.items()}
    return {"parts": means} if means else {}
