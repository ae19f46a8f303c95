"""What was compared, and whether the target is far enough below the unigram entropy."""

from pretrain.compare.convergence import Comparison
from pretrain.compare.plateau import TARGET_MARGIN
from pretrain.reports.words import counted


def headline(comparison: Comparison) -> list[str]:
    """Return a line on what was compared, after a warning of a target near the entropy."""
    arms = comparison.arms
    compared = (
        f"{counted(sum(len(arm.runs) for arm in arms), 'run')} of {counted(len(arms), 'arm')}"
    )
    if len(arms) == 1:
        return [f"{compared}: they differ in the seed only"]
    line = f"{compared}; target: held-out loss {comparison.target:.3f}"
    if comparison.entropy is None:
        return [line]
    below = comparison.entropy - comparison.target
    where = f"{abs(below):.2f} nats {'below' if below > 0 else 'above'} the unigram entropy"
    line += f", {where}"
    if not comparison.has_target_near_plateau:
        return [line]
    warning = (
        f"WARNING: a target {where} shows little else than which arm learned frequencies first"
    )
    return [f"{warning}; give a --target at least {TARGET_MARGIN:g} nat below", line]
