"""What the choice of held-out rows adds to the error of a difference of two arms.

    python benchmarks/verdict/held_out.py runs/layer_drop_longer longer full --rows 1024 15010

Intervals over seeds say nothing about this: all runs are evaluated on the same rows. Here all runs
of two arms are evaluated once more, in fp32, on so many rows spread over the held-out split. The
difference of each batch is averaged over the seeds; the standard error is that of the mean over
batches. Prints a line of JSON for each number of rows.
"""

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from intervals import paired_mean

from data_prep.files.progress_bar import Bar
from pretrain.analysis.subjects import Scope, measured_at_steps, read_subjects
from pretrain.data.batches import MaskedBatch
from pretrain.model.objectives.objective import Objective

Losses = list[tuple[float, int]]  # of each batch: loss in nats, number of predictions


def main() -> None:
    """Run the command."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("sweep", type=Path, help="runs/NAME")
    options.add_argument("arm", help="name of an arm")
    options.add_argument("against", help="name of the arm that it is compared with")
    options.add_argument("--rows", type=int, nargs="+", default=[1024])
    arguments = options.parse_args()
    torch.set_num_threads(1)
    for rows in arguments.rows:
        ours, theirs = (
            losses_of_arm(arguments.sweep, arm, rows) for arm in (arguments.arm, arguments.against)
        )
        names = {"sweep": arguments.sweep.name, "arm": arguments.arm, "against": arguments.against}
        print(json.dumps(names | {"rows": rows} | compare(ours, theirs)), flush=True)


def losses_of_arm(sweep: Path, arm: str, rows: int) -> dict[int, Losses]:
    """Return the losses of all batches of each run of an arm, by its seed.

    Raises:
        SystemExit: the sweep has no run of this arm.
    """
    folders = sorted(sweep.glob(f"{arm}-seed*/"))
    if not folders:
        raise SystemExit(f"{sweep} holds no run of {arm}")
    subjects = read_subjects(folders, Scope(rows))
    measured = measured_at_steps(arm, subjects, losses_of_batches)
    return {one.settings.seed: measured[one.label][one.steps[-1]] for one in subjects}


@torch.no_grad()
def losses_of_batches(model: Objective, batches: Sequence[MaskedBatch], bar: Bar) -> Losses:
    """Return the loss of each batch, and how many predictions it is a mean of."""
    found = []
    for batch in batches:
        found.append((float(model(*batch)), batch.num_predictions()))
        bar.update(len(batch.ids_BS))
    return found


def compare(ours: dict[int, Losses], theirs: dict[int, Losses]) -> dict[str, float | int]:
    """Return the mean difference of paired runs, its interval over seeds and error over batches."""
    pair = paired_mean(
        {seed: mean(losses) for seed, losses in ours.items()},
        {seed: mean(losses) for seed, losses in theirs.items()},
    )
    if pair is None:
        raise SystemExit("the arms have no seed in common")
    seeds = sorted(ours.keys() & theirs.keys())
    weights = np.array([number for _, number in ours[seeds[0]]])
    by_batch = np.mean([np.subtract(ours[seed], theirs[seed])[:, 0] for seed in seeds], 0)
    # Of a ratio of sums: each batch counts by its predictions.
    deviations = weights / weights.mean() * (by_batch - pair.mean)
    count = len(deviations)
    error = math.sqrt(np.square(deviations).sum() / (count - 1) / count)
    return {
        "seeds": len(seeds),
        "predictions": int(weights.sum()),
        "nats": round(pair.mean, 4),
        "low": round(pair.low, 4),
        "high": round(pair.high, 4),
        "error_over_rows": round(error, 4),
    }


def mean(losses: Losses) -> float:
    """Return the mean loss over all predictions in nats."""
    of_batches, weights = zip(*losses, strict=True)
    return float(np.average(of_batches, weights=weights))


if __name__ == "__main__":
    main()
