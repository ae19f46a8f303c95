"""Pre-train with Tupelo and with transformers for the same wall time, on the same rows.

    python benchmarks/against_hugging_face tupe_r --minutes 30 --seeds 1 2 3 --to FOLDER \
        --data.shards data/NAME --model.num_layers 4 --model.width 256

Theirs is what transformers' example `run_mlm` does: Trainer, AdamW with a linear schedule, masks by
DataCollatorForLanguageModeling. Its model, BERT or another type (`--theirs`), has the shape of the
recipe, no dropout, and the precision in which it is faster here. On a CPU freed memory is kept as
ours keeps it, which makes theirs faster. Ours is `tupelo train RECIPE`. Both read the rows of the
same shards with the same tokenizer, in batches of the same size, take the best of the same peak
learning rates (trials of `--trial-share` of the time, on a seed of their own), and are annealed to
the end of the minutes. Their held-out loss is taken on our held-out rows and masks. Seconds are
those of training steps, without evaluation.

A run that has ended is not repeated: the same command continues, with more seeds too, and another
one is refused. `against.json` in the folder of each run has its curve; `tupelo finetune run` takes
FOLDER/theirs-seedN and FOLDER/ours-seedN, `python paper/build.py collect` FOLDER.
Needs `pip install -e '.[benchmarks]'`, and a machine that does nothing else. Two processes with
OMP_NUM_THREADS=1 and `--sides theirs` and `--sides ours` take half of the time, a core each; the
same command without `--sides` then prints the summary.
"""

import argparse
import json
import math
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import torch
from their_trainer import Curve, fastest_precision, their_run

from data_prep.files.program import run_program
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.config.run_files import EvaluationLine, read_checked_lines, was_stopped_by_anomaly
from pretrain.config.settings import ModelSettings
from pretrain.config.settings.transformers_config import FIELDS, FREE
from pretrain.data.shards import open_data, shards_folder
from pretrain.distributed.freed_memory import keep_freed_memory
from pretrain.reports.compare.runs import place_of_loss
from pretrain.train.sweeps.tuning import FIRST_SEED

RATES = [5e-4, 1e-3, 2e-3, 4e-3]
RESULT, PRECISION = "against.json", "theirs_in.txt"
SIDES = ("theirs", "ours")


def main() -> None:
    """Train what is left to do, and print the summary."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("recipe")
    options.add_argument("--theirs", default="bert", help="a type of transformers: roformer, ...")
    options.add_argument("--minutes", type=float, default=30)
    options.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options.add_argument("--rates", type=float, nargs="+", default=RATES, help="peaks to try")
    options.add_argument("--trial-share", type=float, default=0.25, help="trials: of the minutes")
    options.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES, help="default: both")
    options.add_argument("--to", type=Path, required=True, help="a folder; an earlier one goes on")
    arguments, words = options.parse_known_args()
    check_machine(arguments.sides)
    keep_freed_memory()
    comparison = Comparison(arguments, words)
    found = {side: comparison.train(side) for side in arguments.sides}
    if found.keys() == set(SIDES):
        print_summary(**found)


def check_machine(sides: Sequence[str]) -> None:
    """Refuse what would fail late, or compare batches of different sizes.

    Raises:
        ConfigError: with the fix.
    """
    if "theirs" in sides and find_spec("accelerate") is None:
        raise ConfigError(
            "transformers' Trainer needs the package accelerate: pip install -e '.[benchmarks]'"
        )
    if torch.cuda.device_count() > 1:
        raise ConfigError(
            "transformers' Trainer would take a batch on each GPU: export CUDA_VISIBLE_DEVICES=0"
        )


class Comparison:
    """The runs of both sides in one folder."""

    def __init__(self, arguments: argparse.Namespace, words: Sequence[str]) -> None:
        self._arguments = arguments
        settings = load_settings(arguments.recipe, words)
        shape = settings.model.model_dump(include=set(FIELDS)) | dict.fromkeys(FREE, 0.0)
        model = ModelSettings(transformers=arguments.theirs, **shape)
        self._theirs = settings.model_copy(update={"model": model})
        self._shards = open_data(settings)
        self._words = [*words, "--data.shards", str(shards_folder(settings))]

    def train(self, side: str) -> dict[int, Curve]:
        """Return the curves of a side by seed, at the best of the rates that its trials tried."""
        given = self._arguments
        short = given.trial_share * given.minutes
        ends = {
            rate: self._run(side, rate, FIRST_SEED, short, f"trials/{side}-{rate:g}")[-1][2]
            for rate in given.rates
        }
        tried = ", ".join(f"{rate:g}: {end:.3f}" for rate, end in ends.items())
        print(f"{side}, loss at the end of a trial by peak learning rate: {tried}")
        best = min(ends, key=lambda rate: (not math.isfinite(ends[rate]), ends[rate]))
        return {
            seed: self._run(side, best, seed, given.minutes, f"{side}-seed{seed}")
            for seed in given.seeds
        }

    def _their_precision(self) -> torch.dtype:
        """Return the precision of their runs, measured before the first of them."""
        file = self._arguments.to / PRECISION
        if not file.is_file():
            file.parent.mkdir(parents=True, exist_ok=True)
            dtype = fastest_precision(self._theirs, self._shards, self._arguments.to)
            file.write_text(str(dtype).removeprefix("torch."))
        found: torch.dtype = getattr(torch, file.read_text())
        return found

    def _run(self, side: str, rate: float, seed: int, minutes: float, name: str) -> Curve:
        folder = self._arguments.to / name
        asked = {
            "recipe": self._arguments.recipe,
            "words": self._words,
            "theirs": self._arguments.theirs,
            "learning_rate.peak": rate,
            "minutes": minutes,
        }
        if not (folder / RESULT).is_file():
            started = {**asked, "seed": seed, "threads": torch.get_num_threads()}
            if side == "ours":
                words = [*self._words, "--seed", str(seed)]
                curve = our_run(self._arguments.recipe, words, rate, minutes, folder)
            else:
                seeded = self._theirs.model_copy(update={"seed": seed})
                dtype = self._their_precision()
                started["precision"] = str(dtype).removeprefix("torch.")
                curve = their_run(seeded, self._shards, rate, minutes, folder, dtype)
            (folder / RESULT).write_text(json.dumps({**started, "curve": curve}))
        ended = json.loads((folder / RESULT).read_text())
        if ended | asked != ended:
            raise ConfigError(f"{folder} is of another command; choose another folder with --to")
        found: Curve = ended["curve"]
        return found


def our_run(recipe: str, words: Sequence[str], rate: float, minutes: float, folder: Path) -> Curve:
    """Train with `tupelo train` for the same time; the run folder is `folder`."""
    words = [*words, "--learning_rate.peak", str(rate), "--hours", str(minutes / 60)]
    command = [sys.executable, "-m", "tupelo", "train", recipe, *words, "--run-folder", str(folder)]
    shutil.rmtree(folder, ignore_errors=True)  # begun and stopped: it starts anew, as theirs does
    if status := subprocess.run(command, check=False).returncode:
        return [(0, 0.0, math.inf)] if was_stopped_by_anomaly(folder) else sys.exit(status)
    rows = read_checked_lines(folder / "evals.jsonl", EvaluationLine)
    return [(row["step"], row["training_seconds"], row["loss"]) for row in rows]


def print_summary(theirs: dict[int, Curve], ours: dict[int, Curve]) -> None:
    """Print a row for each seed: both ends, and how much sooner ours was there."""
    print("| seed | theirs at the end | ours at the end | ours there after | times sooner |")
    print("| --- | --- | --- | --- | --- |")
    ratios = []
    for seed, curve in theirs.items():
        _, seconds, end = curve[-1]
        there = place_of_loss(((after, loss) for _, after, loss in ours[seed]), end)
        ratios.append(seconds / there if there else -math.inf)  # below any that was reached
        print(
            f"| {seed} | {end:.3f} after {seconds:.0f} s | {ours[seed][-1][2]:.3f} | "
            f"{f'{there:.0f} s | {ratios[-1]:.1f}' if there else 'never | -'} |"
        )
    median = statistics.median(ratios)
    print("\nmedian:", f"{median:.1f} times sooner" if median > 0 else "never")


if __name__ == "__main__":
    run_program(lambda _: main())
