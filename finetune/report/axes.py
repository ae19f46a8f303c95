"""What pre-training had cost at a checkpoint: the horizontal axis of scores over pre-training.

A step of one objective is not a step of another: ELECTRA's is that of two networks. At equal FLOPs
their scores can be compared.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy

from finetune.report.run_folders import run_folder
from finetune.results.sweep_results import EndedTrial, TableRow
from pretrain.compare.run_files import Evaluation, Metrics, read_checked_lines
from pretrain.config.errors import ConfigError

STEPS, FLOPS = "steps", "flops"
AXES = {STEPS: "steps of pre-training", FLOPS: "FLOPs of pre-training"}  # with their labels


def cost_of_rows(
    rows: Sequence[TableRow], trials: Sequence[EndedTrial], axis: str
) -> dict[TableRow, float]:
    """Return where on an axis the checkpoint of each row lies; rows without a step are left out.

    Raises:
        ConfigError: the run of a row is not there any more, or has no line of that step.
    """
    steps = {row: row.step for row in rows if row.pretrained and row.step is not None}
    if axis == STEPS:
        return {row: float(step) for row, step in steps.items()}
    return {row: _flops(run_folder(row, trials), row, step) for row, step in steps.items()}


def _flops(run: Path | None, row: TableRow, step: int) -> float:
    """Return the FLOPs up to a step, between two lines of the run by their straight line."""
    lines: list[dict[str, Any]] = []
    if run is not None:
        lines += read_checked_lines(run / "metrics.jsonl", Metrics)
        lines += read_checked_lines(run / "evals.jsonl", Evaluation)
    costs = {0: 0.0} | {line["step"]: float(line[FLOPS]) for line in lines}
    if step > max(costs):
        raise ConfigError(
            f"--axis {FLOPS}: {row.origin}, the run of {row.model}, has no line of step {step:,} "
            f"or a later one in its metrics.jsonl; put it back, or use --axis {STEPS}"
        )
    steps = sorted(costs)
    return float(numpy.interp(step, steps, [costs[known] for known in steps]))
