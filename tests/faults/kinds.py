"""The kinds of fault, and how many of each the whole suite and its short version try."""

from .case import Case
from .cases import (
    damaged_checkpoints,
    damaged_shards,
    disk,
    elastic,
    kills,
    ranks,
    signals,
    writes,
)
from .material import Variant

KINDS = (
    *("kills", "writes", "disk", "checkpoints", "shards"),
    *("killed-rank", "stopped-rank", "worlds", "elastic", "signals"),
)


def cases_of(kinds: list[str], *, count: int, short: bool) -> list[Case]:
    """Return the cases of these kinds, with `count` random kills."""
    table = _short() if short else _whole(count)
    return [case for kind in kinds for case in table[kind]]


def _whole(count: int) -> dict[str, list[Case]]:
    return {
        "kills": kills.cases(count),
        "writes": writes.cases(None),
        "disk": disk.cases((0, 1, 2, 3)),
        "checkpoints": damaged_checkpoints.cases((Variant(0), Variant(1), Variant(3, 2))),
        "shards": damaged_shards.cases(),
        "killed-rank": ranks.killed_cases(("torchrun", "deepspeed"), (0, 1)),
        "stopped-rank": ranks.stopped_cases(),
        "worlds": kills.world_cases(),
        "elastic": elastic.cases(),
        "signals": signals.cases() + signals.launcher_cases(),
    }


def _short() -> dict[str, list[Case]]:
    """Return so few that they take a minute; they need two references, the slowest part."""
    return {
        "kills": kills.cases(3, stages=(1,)),
        "writes": writes.cases(3),
        "disk": disk.cases((1,)),
        "checkpoints": damaged_checkpoints.cases((Variant(1),), ("a flipped bit",)),
        "shards": damaged_shards.cases()[:1],
        "killed-rank": [],
        "stopped-rank": [],
        "worlds": [],
        "elastic": elastic.cases(elastic.JOURNEYS[:1]),
        "signals": signals.cases(("SIGTERM",))[:1],
    }
