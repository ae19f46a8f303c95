"""What the benchmarks share: variants that take turns in one process, medians, JSON.

A machine whose speed drifts slows all variants alike when they take turns. Each is warmed up
first. Wall time of steps that end with the device finished; medians and quartiles. On a CPU whose
cores others use too, `OMP_NUM_THREADS=1` and `--clock processor` count the seconds that this
process really computed instead.
"""

import argparse
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# As in run_pretrain.sh; glibc reads them when the process starts, so it is started again.
ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": "8589934592",
    "MALLOC_TRIM_THRESHOLD_": "17179869184",
    "MALLOC_TOP_PAD_": "268435456",
}
WARM_UP_ROUNDS = 3

Step = Callable[[], object]
Shape = tuple[int, int, int, int]  # layers, width, length, sequences
CLOCKS: dict[str, Callable[[], float]] = {
    "wall": time.perf_counter,
    "processor": time.process_time,
}


def restart_with(environment: dict[str, str]) -> None:
    """Start this program again unless it runs with these environment variables."""
    if any(os.environ.get(name) != value for name, value in environment.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **environment})


def parser(description: str, *, steps: int) -> argparse.ArgumentParser:
    """Return a parser with what every benchmark takes."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--steps", type=int, default=steps, help="counted steps of each variant")
    made.add_argument("--clock", choices=CLOCKS, default="wall", help="processor: on a CPU only")
    made.add_argument("--json", type=Path, help="write the numbers there too")
    return made


def shape(text: str) -> Shape:
    """Read layers,width,length,sequences."""
    layers, width, length, sequences = (int(part) for part in text.split(","))
    return layers, width, length, sequences


def time_shapes(
    options: argparse.ArgumentParser,
    measure: Callable[[Shape, Any, argparse.Namespace], dict[str, Any]],
    *,
    cpu: list[Shape],
    gpu: list[Shape],
) -> None:
    """Read the options, and write what `measure` returns for each shape and the ranks.

    Args:
        options: to which --shapes is added.
        measure: times one shape and prints its table.
        cpu: the default shapes on a CPU.
        gpu: the default shapes on a GPU.
    """
    options.add_argument("--shapes", type=shape, nargs="+", help="layers,width,length,sequences")
    arguments = options.parse_args()
    from pretrain.distributed.ranks import start_ranks

    ranks = start_ranks()
    results = []
    for chosen in arguments.shapes or (cpu if ranks.device == "cpu" else gpu):
        results.append(measure(chosen, ranks, arguments))
        gc.collect()
    write_json(arguments.json, results)


def alternate(
    variants: dict[str, Step], steps: int, *, clock: str = "wall"
) -> dict[str, list[float]]:
    """Run every variant in turn and return the seconds of each counted step."""
    now = CLOCKS[clock]
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for round_number in range(steps + WARM_UP_ROUNDS):
        for name, step in variants.items():
            start = now()
            step()
            if round_number >= WARM_UP_ROUNDS:
                seconds[name].append(now() - start)
    return seconds


def spread(seconds: list[float]) -> dict[str, float]:
    """Return median and quartiles; of a single step, its time."""
    low, median, high = statistics.quantiles(seconds * 2 if len(seconds) == 1 else seconds, n=4)
    return {"low": low, "median": median, "high": high}


def milliseconds(measured: dict[str, float]) -> tuple[str, str]:
    """Return median and quartiles as they are printed."""
    digits = 0 if measured["median"] > 0.05 else 2
    low, median, high = (f"{measured[key] * 1e3:.{digits}f}" for key in ("low", "median", "high"))
    return median, f"{low} - {high}"


def print_rows(title: str, headers: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Print a table under a title."""
    from tabulate import tabulate

    print(f"\n{title}")
    alignment = ("left", *["right"] * (len(headers) - 1))
    print(tabulate(rows, headers=headers, colalign=alignment, disable_numparse=True), flush=True)


def write_json(file: Path | None, numbers: Any) -> None:
    """Write the numbers with what they were measured on."""
    from pretrain.train.provenance import environment

    if file is not None:
        file.write_text(json.dumps({"environment": environment(), "results": numbers}, indent=1))
