"""Train, kill with SIGKILL, resume, and compare the steps that ran twice.

    python benchmarks/gpu/killed_run.py FOLDER STEPS [SETTING ...]     writes FOLDER/killed_run.json

On a CPU their losses are equal bit for bit. On a GPU some gradients are summed in any order: equal
runs differ in their last bits, one with other sequences, weights or moments by 1 % at once.
"""

import json
import math
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

RECIPE = Path(__file__).with_name("killed_run.toml").absolute()
BOUND = {"cpu": 0.0, "cuda": 2e-3}  # of the loss, relatively
MORE = 10  # steps between the checkpoint and the kill, at least


def main(folder: Path, steps: int, words: list[str]) -> None:
    """Train half of the steps, kill, train to the end, and write what was measured."""
    run, half = folder / "run", steps // 2
    shutil.rmtree(run, ignore_errors=True)
    every = [f"--{part}.every_steps={steps // 4}" for part in ("checkpoint", "evaluation")]
    tupelo = [sys.executable, "-m", "tupelo", "train"]
    command = [*tupelo, str(RECIPE), f"--steps={steps}", *every, "--run-folder", str(run), *words]
    first = subprocess.Popen(command, cwd=folder)
    checkpoint = run / "checkpoints" / f"step_{half:08d}"
    while first.poll() is None and not (checkpoint.exists() and last_step(run) >= half + MORE):
        time.sleep(0.05)
    # Ranks of torchrun are in sessions of their own.
    for process in (*psutil.Process(first.pid).children(recursive=True), first):
        process.kill()
    first.wait()
    before = lines(run, "metrics")
    print(f"killed after step {last_step(run)}", flush=True)
    subprocess.run([*tupelo, str(run), "--resume"], cwd=folder, check=True)
    numbers = numbers_of(run, before)
    (folder / "killed_run.json").write_text(json.dumps(numbers, indent=1) + "\n")
    print(json.dumps(numbers, indent=1))
    if not numbers["difference"] <= numbers["bound"]:
        sys.exit("error: the resumed run is another one")
    if not numbers["losses"][-1] < numbers["losses"][0]:
        sys.exit("error: it did not learn")


def lines(run: Path, name: str) -> list[dict[str, Any]]:
    """Return the whole lines of a file of the run."""
    file = run / f"{name}.jsonl"
    text = file.read_text() if file.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line[-1] == "\n"]


def last_step(run: Path) -> int:
    """Return the step of the last line of metrics."""
    return max((line["step"] for line in lines(run, "metrics")), default=0)


def numbers_of(run: Path, before: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how far the steps differ that ran twice, what the run learned, and how fast."""
    found, launch = lines(run, "metrics"), lines(run, "launches")[-1]
    losses = {line["step"]: line["loss"] for line in found}
    twice = [line for line in before if line["step"] > launch["resumed_from"]]
    differences = [abs(line["loss"] / losses[line["step"]] - 1) for line in twice]
    speeds = ("tokens_per_second", "model_flops_utilisation")
    return {
        "resumed_from": launch["resumed_from"],
        "compared": len(twice),
        # Not even one step, or a NaN, is a difference.
        "difference": max(differences or [math.inf], key=lambda one: (math.isnan(one), one)),
        "bound": BOUND["cuda" if "cuda" in launch["versions"] else "cpu"],
        "losses": [found[0]["loss"], found[-1]["loss"]],
        "held_out": [[line["step"], line["loss"]] for line in lines(run, "evals")],
        "peak_memory_bytes": found[-1]["peak_memory_bytes"],
        "execution": launch["execution"],
        **{name: statistics.median(line[name] for line in found) for name in speeds},
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), int(sys.argv[2]), sys.argv[3:])
