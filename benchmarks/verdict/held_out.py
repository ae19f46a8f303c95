"""What the choice of held-out rows adds to the error of a difference of two arms.

    python benchmarks/verdict/held_out.py runs/layer_drop_longer longer full --rows 1024 14800

Intervals over seeds say nothing about this: all runs are evaluated on the same rows. Here all runs
of two arms are evaluated once more, in fp32, on so many rows spread over the held-out split. The
difference of each batch is averaged over the seeds; the standard error is that of the mean over
batches. Prints a line of JSON for each number of rows.
"""

import argparse
import json
import math
import statistics
from pathlib import Path

import torch
from intervals import paired_mean

from data_prep.files.progress_bar import progress_bar
from pretrain.analysis.subjects import Scope, Subject, num_rows, read_subjects

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
    return {
        subject.settings.seed: losses_of(subject) for subject in read_subjects(folders, Scope(rows))
    }


@torch.no_grad()
def losses_of(subject: Subject) -> Losses:
    """Return the losses of all batches of a run at its end."""
    model, batches = subject.model(subject.steps[-1]), subject.batches()
    found = []
    with progress_bar(subject.label, num_rows(batches), "row", shown=True) as bar:
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
    weights = [number for _, number in ours[seeds[0]]]
    size = statistics.fmean(weights)
    # Of a ratio of sums: each batch counts by its predictions.
    deviations = [
        weight
        / size
        * (statistics.fmean(ours[seed][n][0] - theirs[seed][n][0] for seed in seeds) - pair.mean)
        for n, weight in enumerate(weights)
    ]
    error = math.sqrt(
        sum(one * one for one in deviations) / (len(deviations) - 1) / len(deviations)
    )
    return {
        "seeds": len(seeds),
        "predictions": sum(weights),
        "nats": round(pair.mean, 4),
        "low": round(pair.low, 4),
        "high": round(pair.high, 4),
        "error_over_rows": round(error, 4),
    }


def mean(losses: Losses) -> float:
    """Return the mean loss over all predictions in nats."""
    total = sum(number for _, number in losses)
    return sum(loss * number for loss, number in losses) / total


if __name__ == "__main__":
    main()
