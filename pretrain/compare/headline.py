"""What was compared, and how far the target can be trusted, in words."""

import math

from pretrain.compare.convergence import Comparison
from pretrain.compare.plateau import TARGET_MARGIN
from pretrain.compare.runs import Arm
from pretrain.reports.words import counted


def headline(comparison: Comparison) -> list[str]:
    """Return what was compared, as sentences; the first warns of a target near the plateau."""
    arms = comparison.arms
    runs = [run for arm in arms for run in arm.runs]
    compared = f"{counted(len(runs), 'run')} of {counted(len(arms), 'arm')}"
    if len(arms) == 1:
        what = [f"{compared}: they differ in the seed only."]
    else:
        loss = f"{comparison.target:.3f} nats{_depth(comparison)}"
        what = [f"{compared}, compared at a held-out loss of {loss}.", _baseline(arms[0])]
    return [*target_warning(comparison), *what]


def target_warning(comparison: Comparison) -> list[str]:
    """Return a warning if the target lies on the plateau of word frequencies or near it."""
    if not comparison.has_target_near_plateau or comparison.entropy is None:
        return []
    below = comparison.entropy - comparison.target
    where = f"only {below:.2f} nats below" if below > 0 else "above"
    return [
        f"WARNING: the target of {comparison.target:.3f} nats lies {where} the entropy of word "
        f"frequencies, {comparison.entropy:.3f}: what arms need to reach it mostly shows which "
        f"left that plateau first; give a target at least {TARGET_MARGIN:g} nat below."
    ]


def end_of(arm: Arm) -> str:
    """Return "ends at 4.000 nats after 40 steps", with the range over several seeds."""
    steps = sorted({run.evaluations[-1]["step"] for run in arm.runs})
    after = " to ".join(f"{step:,}" for step in dict.fromkeys((steps[0], steps[-1])))
    finished = [run.result is not None for run in arm.runs]
    ends = "ends" if all(finished) else "is not finished, and stands"
    return f"{ends} at {_losses_in_words(arm)} after {after} steps"


def _depth(comparison: Comparison) -> str:
    """Return how far the target lies behind the plateau, where the warning does not say it."""
    if comparison.entropy is None or comparison.has_target_near_plateau:
        return ""
    return f", {comparison.entropy - comparison.target:.2f} below the entropy of word frequencies"


def _baseline(arm: Arm) -> str:
    return f"{arm.name} (the baseline) {end_of(arm)}."


def _losses_in_words(arm: Arm) -> str:
    """Return the held-out loss at the end with its range over the seeds."""
    losses = sorted(loss for run in arm.runs if math.isfinite(loss := run.final_loss))
    diverged = len(arm.runs) - len(losses)
    median = arm.median(lambda run: run.final_loss)
    text = "no finite held-out loss" if median is None else f"{median:.3f} nats"
    if len(losses) > 1:
        text += f" ({losses[0]:.3f} - {losses[-1]:.3f} over {counted(len(losses), 'seed')})"
    return text + (f", {diverged} of {len(arm.runs)} diverged," if diverged else "")
