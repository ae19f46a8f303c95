"""What pre-training had cost at a checkpoint: the horizontal axis of scores over pre-training.

A step of one objective is not a step of another: ELECTRA's is that of two networks. At equal FLOPs
their scores can be compared.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy

from finetune.report.run_folders import run_folder
from finetune.results.sweep_results import EndedTrial, TableRow
from pretrain.compare.run_files import (
    Evaluation,
    Metrics,
    read_checked_lines,
)
from pretrain.config.errors import ConfigError

STEPS = "steps"


class Axis(NamedTuple):
    """A measure of pre-training."""

    name: str  # the value of --axis
    key: str  # in the lines of a run
    label: str  # of the axis
    remark: str = ""


AXES = {
    axis.name: axis
    for axis in (
        Axis(STEPS, "step", "steps of pre-training"),
        Axis("tokens", "tokens", "tokens of pre-training"),
        Axis(
            *("flops", "flops", "FLOPs of pre-training"),
            "FLOPs are those of the blocks that ran, of every network that the objective trains.",
        ),
        Axis(
            *("seconds", "training_seconds", "seconds of pre-training"),
            "Seconds are without evaluation and checkpoints; compare runs of one machine only.",
        ),
    )
}


def cost_of_rows(
    rows: Sequence[TableRow], trials: Sequence[EndedTrial], axis: Axis
) -> dict[TableRow, float]:
    """Return where on an axis the checkpoint of each row lies; rows without a step are left out.

    Raises:
        ConfigError: the run of a row is not there any more, or has no line of that step.
    """
    found: dict[TableRow, float] = {}
    for row in rows:
        if not row.pretrained or row.step is None:
            continue
        if axis.name == STEPS:
            found[row] = float(row.step)
        else:
            run = run_folder(row, trials)
            if run is None:
                raise ConfigError(
                    f"--axis {axis.name}: {row.origin}, the run of {row.model}, is not there any "
                    f"more; put it back, or use --axis {STEPS}"
                )
            found[row] = _cost(run, row.step, axis)
    return found


def _cost(run: Path, step: int, axis: Axis) -> float:
    """Return the cost up to a step, between two lines of the run by their straight line."""
    lines: list[dict[str, Any]] = [
        *read_checked_lines(run / "metrics.jsonl", Metrics),
        *read_checked_lines(run / "evals.jsonl", Evaluation),
    ]
    costs = {0: 0.0} | {line["step"]: float(line[axis.key]) for line in lines}
    if step > max(costs):
        raise ConfigError(
            f"--axis {axis.name}: {run} has no line of step {step:,} or a later one in its "
            f"metrics.jsonl; use --axis {STEPS}"
        )
    steps = sorted(costs)
    return float(numpy.interp(step, steps, [costs[known] for known in steps]))
