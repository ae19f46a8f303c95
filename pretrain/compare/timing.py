"""Whether the seconds of runs can be compared: equal machines that did nothing else.

Steps, tokens and FLOPs do not depend on the machine; seconds and tokens/s do.
"""

import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence

from pretrain.compare.launches import machine_differences
from pretrain.compare.runs import Arm, Run
from pretrain.reports.words import listed

# A run that waited for a processor for a larger share of its training ran on a loaded machine. On
# an idle one the share is below 0.01; beside one busy process per core it is about a half.
LOADED = 0.05

# Largest relative spread of the FLOP/s of a run (interquartile range over median) and of the speeds
# of the runs of an arm (range over median). Two virtual cores with little else to do have 0.06 to
# 0.08; a run that shares them with a busy process now and then has 0.2 and more.
UNSTEADY = 0.1

PIECES = 8  # of a run: the time of a few steps varies on any machine
FEWEST_PIECES = 4  # for quartiles
MOST_NAMES = 3


def reasons_against_seconds(arms: Sequence[Arm]) -> list[str]:
    """Return why seconds cannot be compared, a clause each; none if they can."""
    runs = [run for arm in arms for run in arm.runs]
    waits = {str(run.folder): wait_share(run) or 0.0 for run in runs}
    spreads = {str(run.folder): speed_spread(run) for run in runs}
    between_seeds = {arm.name: _spread_over_seeds(arm) for arm in arms}
    return [
        *machine_differences({arm.name: arm.launches for arm in arms}),
        *_other_precisions(runs),
        *_above(
            waits,
            LOADED,
            lambda n: (
                f"{n} of {len(runs)} runs waited for processors during more than "
                f"{LOADED:.0%} of their training, because other work had them"
            ),
        ),
        *_above(
            spreads,
            UNSTEADY,
            lambda n: (
                f"the speed of {n} of {len(runs)} runs varied while they trained: the "
                f"interquartile range of their FLOP/s is more than {UNSTEADY:.0%} of the median"
            ),
        ),
        *_above(
            between_seeds,
            UNSTEADY,
            lambda _: f"runs of one arm differ in speed by more than {UNSTEADY:.0%}",
        ),
    ]


def _other_precisions(runs: Sequence[Run]) -> list[str]:
    """Return a clause if runs that leave the precision to the machine have different ones."""
    found: dict[str, set[str]] = {}
    for run in runs:
        precisions = {launch["precision"] for launch in run.launches if "precision" in launch}
        found.setdefault(run.settings["engine.ds_config"], set()).update(precisions)
    return [
        f"with ds_config {name} some runs computed in {listed(sorted(precisions))}"
        for name, precisions in found.items()
        if len(precisions) > 1
    ]


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


def _above(values: Mapping[str, float], limit: float, sentence: Callable[[int], str]) -> list[str]:
    """Return a clause with the largest values, if any is above the limit."""
    found = sorted((name for name in values if values[name] > limit), key=lambda n: -values[n])
    if not found:
        return []
    named = ", ".join(f"{name} {values[name]:.0%}" for name in found[:MOST_NAMES])
    more = f", and {len(found) - MOST_NAMES} more" if len(found) > MOST_NAMES else ""
    return [f"{sentence(len(found))} ({named}{more})"]
