"""Train for five minutes with a SIGKILL in between, and compare what ran twice.

    python benchmarks/gpu_session/killed_run.py FOLDER --json FILE [--small]

The steps after the last checkpoint run twice: before the kill, without an interruption, and after
the resume. Their losses, as metrics.jsonl has them, are compared: on a CPU bit for bit. On a GPU
some of torch's gradients are summed in any order, so that two equal runs differ in their last bits,
and the differences grow; a run with other rows, weights or moments differs by 1 % at once.
"""

import argparse
import json
import math
import shutil
import statistics
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import child

RECIPE = Path(__file__).with_name("killed_run.toml")
BOUND = {"cpu": 0.0, "cuda": 2e-3}
TRAINING_SECONDS = 200  # with shards, and two starts that compile, five minutes
USUAL_STEPS, FEWEST_STEPS = 3000, 240  # the former where no part before has timed a step
POLL_SECONDS = 0.1
STEPS_AFTER_CHECKPOINT = 50  # before the kill, and at least compared
COMPARED_LINES = 20
LEAST_FALL = 0.1  # of the loss, nats
PART_OF_NUMBERS = "precisions.numbers.json"
TIMED_VARIANT = "bf16, torch's AdamW"
SMALL = (
    *("--data.sequence_length", "32", "--model.max_sequence_length", "32"),
    *("--model.num_layers", "4", "--model.width", "64"),
    *("--model.num_heads", "2", "--model.feedforward_width", "256", "--data.max_words", "60000"),
    *("--model.vocabulary_size", "1024", "--batch.global_sequences", "8"),
    *("--learning_rate.peak", "3e-3", "--evaluation.rows", "16", "--log_every_steps", "2"),
)
SMALL_STEPS = 60


def main() -> None:
    """Train, kill, resume, compare, and write the numbers after each of it."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("folder", type=Path, help="for shards and run; the run in it is removed")
    options.add_argument("--json", type=Path, required=True)
    options.add_argument("--small", action="store_true", help="seconds on a CPU")
    arguments = options.parse_args()
    run = KilledRun(arguments.folder.absolute(), arguments.json, is_small=arguments.small)
    steps = SMALL_STEPS if arguments.small else steps_of(arguments.json.with_name(PART_OF_NUMBERS))
    run.train(steps)


class KilledRun:
    """A run folder and the launches on it."""

    def __init__(self, folder: Path, file: Path, *, is_small: bool) -> None:
        self.place, self.folder, self.file = folder, folder / "run", file
        self.log = folder / "killed_run.txt"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.words = SMALL if is_small else ()
        self.launcher = () if is_small else ("--gpus", 1)

    def train(self, steps: int) -> None:
        """Train so many steps, with a kill after the second checkpoint."""
        every = steps // 4
        words = [RECIPE, *self.words, "--steps", steps, "--checkpoint.every_steps", every]
        words += ["--evaluation.every_steps", every]
        self.wait(self.start("prepare", *words))
        checkpoint, after = 2 * every, min(STEPS_AFTER_CHECKPOINT, every // 2)
        first = self.start("train", *words, "--run-folder", self.folder, *self.launcher)
        self.wait(first, lambda: self.has(checkpoint) and self.last_step() >= checkpoint + after)
        child.end(first, grace=0)
        before = self.lines("metrics")
        print(f"killed after step {before[-1]['step']}", flush=True)
        second = self.start("train", self.folder, "--resume", *self.launcher)
        target = before[-1]["step"]
        # Later than all of the killed one, whose lines stay for a moment after the start.
        self.wait(second, lambda: self.last_step() > target)
        numbers: dict[str, Any] = {"steps": steps, "resumed": self.compare(before)}
        self.write(numbers)
        self.wait(second)
        numbers.update(self.totals())
        self.write(numbers)

    def compare(self, before: list[dict[str, Any]]) -> dict[str, Any]:
        """Compare the lines of metrics that were written before the kill and after it."""
        launch = self.lines("launches")[-1]
        resumed_from = launch["resumed_from"]
        losses = {line["step"]: line["loss"] for line in self.lines("metrics")}
        again = [line for line in before if line["step"] > resumed_from][:COMPARED_LINES]
        differences = [abs(line["loss"] - losses[line["step"]]) / line["loss"] for line in again]
        has_nan = any(map(math.isnan, differences))  # which max() passes over behind a number
        return {
            "from_step": resumed_from,
            "lines": len(again),
            "largest_difference": math.inf if has_nan else max(differences, default=0.0),
            "bound": BOUND["cuda" if "cuda" in launch["versions"] else "cpu"],
        }

    def totals(self) -> dict[str, Any]:
        """Return what a finished run has learned, and how fast."""
        lines = self.lines("metrics")
        result = json.loads((self.folder / "result.json").read_text())
        launch = self.lines("launches")[-1]
        speed = {
            name: statistics.median(line[name] for line in lines)
            for name in ("tokens_per_second", "model_flops_utilisation")
        }
        return {
            "losses": [lines[0]["loss"], lines[-1]["loss"]],
            "least_fall": LEAST_FALL,
            "held_out_loss": result["held_out_loss"],
            "tokens": result["tokens"],
            "training_seconds": result["training_seconds"],
            "flops_share": result["flops"] / result["full_depth_flops"],
            "peak_memory_bytes": lines[-1]["peak_memory_bytes"],
            "execution": f"attention {launch['execution']['attention']}, {launch['precision']}",
            **speed,
        }

    def start(self, *words: object) -> "subprocess.Popen[bytes]":
        """Start `tupelo`; it puts its shards below the current folder."""
        command = [sys.executable, "-m", "tupelo", *map(str, words)]
        return child.start(command, self.log, folder=self.place)

    def wait(
        self, process: "subprocess.Popen[bytes]", until: Callable[[], bool] | None = None
    ) -> None:
        """Wait for a moment, or for the end of the process.

        Raises:
            SystemExit: the process failed, or ended before the moment.
        """
        try:
            while process.poll() is None:
                if until is not None and until():
                    return
                time.sleep(POLL_SECONDS)
        except BaseException:
            # Not in the group of this process: nobody else would end what it started.
            child.end(process, grace=0)
            raise
        if process.returncode or not (until is None or until()):
            sys.exit(f"error: tupelo, status {process.returncode}: {child.last_line(self.log)}")

    def has(self, step: int) -> bool:
        """Return whether there is a checkpoint of this step."""
        return (self.folder / "checkpoints" / f"step_{step:08d}").exists()

    def last_step(self) -> int:
        """Return the step of the last line of metrics."""
        lines = self.lines("metrics")
        return lines[-1]["step"] if lines else 0

    def lines(self, name: str) -> list[dict[str, Any]]:
        """Return the whole lines of a file of the run."""
        file = self.folder / f"{name}.jsonl"
        text = file.read_text() if file.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line[-1] == "\n"]

    def write(self, numbers: dict[str, Any]) -> None:
        """Write what is known so far."""
        partial = self.file.with_suffix(".partial")
        partial.write_text(json.dumps({"results": numbers}, indent=1) + "\n")
        partial.replace(self.file)
        print(json.dumps(numbers, indent=1), flush=True)


def steps_of(precisions: Path) -> int:
    """Return the steps of a run of the wanted time, a multiple of what the run needs."""
    try:
        [found, *_] = json.loads(precisions.read_text())["results"]
        per_sequence = float(found["variants"][TIMED_VARIANT]["seconds"] / found["shape"][3])
    except (OSError, KeyError, IndexError, ValueError):
        return USUAL_STEPS
    # As many as fitted were timed; a step of the run is several micro-batches then.
    sequences: int = tomllib.loads(RECIPE.read_text())["batch"]["global_sequences"]
    return max(FEWEST_STEPS, round(TRAINING_SECONDS / (per_sequence * sequences) / 40) * 40)


if __name__ == "__main__":
    main()
