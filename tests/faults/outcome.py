"""The outcomes of the faults, and their table."""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tabulate import tabulate


class NotSurvivedError(Exception):
    """A run did not survive a fault."""


class SkippedError(Exception):
    """This machine does not allow the fault."""


@dataclass
class Outcome:
    """The outcome of some faults of one kind."""

    kind: str
    name: str
    tried: int = 0
    survived: int = 0
    lost: int = 0  # samples
    repeated: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)
    skipped: str = ""

    @property
    def is_good(self) -> bool:
        return not self.problems and self.tried == self.survived


def as_table(outcomes: Iterable[Outcome]) -> str:
    """Return a line for each kind of fault, and the sums."""
    kinds: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        kinds.setdefault(outcome.kind, []).append(outcome)
    rows = [[kind, *_sums(group)] for kind, group in kinds.items()]
    everything = [outcome for group in kinds.values() for outcome in group]
    rows.append(["all", *_sums(everything)])
    names = ("fault", "tried", "survived", "samples lost", "samples repeated", "seconds")
    return tabulate(rows, headers=names, floatfmt=".0f")


def remarks(outcomes: Iterable[Outcome]) -> str:
    """Return what was skipped, and what went wrong."""
    lines = []
    for outcome in outcomes:
        title = f"{outcome.kind}, {outcome.name}"
        lines += [f"skipped: {title}: {outcome.skipped}"] * bool(outcome.skipped)
        lines += [f"NOT SURVIVED: {title}: {problem}" for problem in outcome.problems]
    return "\n".join(lines)


def as_record(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """Return everything, for a JSON file."""
    return [dataclasses.asdict(outcome) for outcome in outcomes]


def _sums(outcomes: list[Outcome]) -> list[float]:
    return [
        sum(outcome.tried for outcome in outcomes),
        sum(outcome.survived for outcome in outcomes),
        sum(outcome.lost for outcome in outcomes),
        sum(outcome.repeated for outcome in outcomes),
        sum(outcome.seconds for outcome in outcomes),
    ]
