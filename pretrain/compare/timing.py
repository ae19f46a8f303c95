"""Whether the seconds of runs can be compared: equal machines that did nothing else.

Steps, tokens and FLOPs do not depend on the machine; seconds and tokens/s do.
"""

import itertools
import statistics
from collections.abc import Sequence

from pretrain.compare.launches import MACHINE, differing
from pretrain.compare.runs import Arm, Run
from pretrain.reports.words import counted

# A run that waited for a processor for a larger share of its training ran on a loaded machine. On
# an idle one the share is below 0.01; beside one busy process per core it is about a half.
LOADED = 0.05

# Largest relative spread of the FLOP/s of a run (interquartile range over median) and of the speeds
# of the runs of an arm (range over median). Two virtual cores with little else to do have 0.06 to
# 0.08; a run that shares them with a busy process now and then has 0.2 and more.
UNSTEADY = 0.1

PIECES = 8  # of a run: the time of a few steps varies on any machine
FEWEST_PIECES = 4  # for quartiles


def reasons_against_seconds(arms: Sequence[Arm]) -> list[str]:
    """Return why seconds cannot be compared, a few words each; none if they can."""
    runs = [run for arm in arms for run in arm.runs]
    by_config: dict[str, list[Run]] = {}
    for run in runs:
        by_config.setdefault(run.settings["engine.ds_config"], []).append(run)
    # Where the runs do not ask for a precision, the machine chooses it.
    chosen = (differing(Arm("", same).launches) for same in by_config.values())
    launches = [launch for arm in arms for launch in arm.launches]
    different = [name for name in differing(launches) if name in MACHINE]
    different += ["precision"] if any("precision" in found for found in chosen) else []
    waits = [share for run in runs if (share := wait_share(run) or 0.0) > LOADED]
    spreads = [spread for run in runs if (spread := speed_spread(run)) > UNSTEADY]
    seeds = [spread for arm in arms if (spread := _spread_over_seeds(arm)) > UNSTEADY]
    reasons = [f"different {', '.join(different)}"] if different else []
    for noun, what, shares in (
        ("run", "under load", waits),
        ("run", "of unsteady speed", spreads),
        ("arm", "of unequal speeds", seeds),
    ):
        if shares:
            reasons.append(f"{counted(len(shares), noun)} {what} ({max(shares):.0%})")
    return reasons


def wait_share(run: Run) -> float | None:
    """Return the share of its training in which a run waited for a processor; None: unknown."""
    return weighted_by_seconds(run, "processor_wait_share")


def weighted_by_seconds(run: Run, name: str) -> float | None:
    """Return the mean of a field of metrics, weighted by the training seconds of its lines."""
    total = seconds = before = 0.0
    for row in run.metrics:
        if row.get(name) is not None:
            total += row[name] * (row["training_seconds"] - before)
            seconds += row["training_seconds"] - before
        before = row["training_seconds"]
    return total / seconds if seconds > 0 else None


def speed_spread(run: Run) -> float:
    """Return the interquartile range of the FLOP/s in equal pieces of a run, over the median.

    FLOP/s, not tokens/s: with layer drop the cost of a token changes on purpose.
    """
    totals = [(0.0, 0.0), *((row["flops"], row["training_seconds"]) for row in run.metrics)]
    pieces = min(PIECES, len(run.metrics))
    if pieces < FEWEST_PIECES:
        return 0.0
    ends = [totals[number * len(run.metrics) // pieces] for number in range(pieces + 1)]
    rates = [
        (flops - flops_before) / (seconds - seconds_before)
        for (flops_before, seconds_before), (flops, seconds) in itertools.pairwise(ends)
        if seconds > seconds_before
    ]
    if len(rates) < FEWEST_PIECES:
        return 0.0
    low, median, high = statistics.quantiles(rates, n=4)
    return float((high - low) / median) if median > 0 else 0.0


def _spread_over_seeds(arm: Arm) -> float:
    speeds = [run.tokens_per_second for run in arm.runs]
    return (max(speeds) - min(speeds)) / statistics.median(speeds)
