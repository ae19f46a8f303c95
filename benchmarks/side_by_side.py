"""What the benchmarks share: variants that take turns in one process, medians, JSON.

A machine whose speed drifts slows all variants alike when they take turns. Each is warmed up
first. Wall time between two moments in which the device has finished; medians and quartiles. On a
CPU whose cores others use too, `OMP_NUM_THREADS=1` and `--clock processor` count the seconds that
this process really computed instead.

Results are written after each shape. A variant that fails is recorded with its error, and the
others go on; a shape that does not fit into the memory is timed with half the sequences.
"""

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

WARM_UP_ROUNDS = 3

# In training nothing waits between two steps. On a GPU a wait after each one would add the time in
# which the host issues the first kernels of the next.
STEPS_PER_ROUND = {"cpu": 1, "cuda": 5}

Step = Callable[[], object]
Built = TypeVar("Built", bound=Step)
Shape = tuple[int, int, int, int]  # layers, width, length, sequences
CLOCKS: dict[str, Callable[[], float]] = {
    "wall": time.perf_counter,
    "processor": time.process_time,
}


class Timing(NamedTuple):
    """The seconds of a step in each counted round, by variant, and the state of the GPU."""

    seconds: dict[str, list[float]]
    gpu: dict[str, float] | None


def parser(
    description: str, *, steps: int, counts: str = "counted rounds: a step, on a GPU five"
) -> argparse.ArgumentParser:
    """Return a parser with what every benchmark takes; --steps counts what `counts` says."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--steps", type=int, default=steps, help=f"{counts} (default: {steps})")
    made.add_argument("--json", type=Path, help="write the numbers there too")
    return made


def add_clock(options: argparse.ArgumentParser) -> None:
    """Add --clock, of a benchmark that passes it on to `alternate`."""
    options.add_argument(
        "--clock", type=clock, choices=CLOCKS, default="wall", help="processor: on a CPU only"
    )


def clock(name: str) -> str:
    """Refuse the time of the processor on a GPU, which computes while the processor waits."""
    if name == "processor":
        from pretrain.distributed.unusable_gpus import sees_gpu

        if sees_gpu():
            raise argparse.ArgumentTypeError(
                "a GPU computes while the processor waits; take wall, or hide the GPU: "
                "CUDA_VISIBLE_DEVICES="
            )
    return name


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

    Raises:
        SystemExit: a shape failed.
    """
    options.add_argument("--shapes", type=shape, nargs="+", help="layers,width,length,sequences")
    arguments = options.parse_args()
    from pretrain.distributed.ranks import start_ranks, stop_ranks

    ranks = start_ranks()
    results: list[dict[str, Any]] = []
    for chosen in arguments.shapes or (cpu if ranks.device == "cpu" else gpu):
        results.append(where_it_fits(chosen, lambda size: measure(size, ranks, arguments)))
        if ranks.is_first:
            write_json(arguments.json, results)
    stop_ranks()
    fail_after_errors(results)


def where_it_fits(chosen: Shape, measure: Callable[[Shape], dict[str, Any]]) -> dict[str, Any]:
    """Return what `measure` returns for a shape, or with half the sequences until they fit.

    An error is returned as `error`. Ranks that wait for each other must not halve alone: of
    several ranks every error ends the program.
    """
    import torch

    layers, width, length, sequences = chosen
    while True:
        try:
            return measure((layers, width, length, sequences))
        except torch.OutOfMemoryError as error:
            problem, sequences = one_line(error), sequences // 2
        except Exception as error:
            if torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
                raise
            problem, sequences = one_line(error), 0
        finally:
            release_memory()
        print(f"{chosen}: {problem}", flush=True)
        if sequences == 0:
            return {"shape": chosen, "error": problem}


def ready(builders: Mapping[str, Callable[[], Built]]) -> tuple[dict[str, Built], dict[str, str]]:
    """Build every variant, then take the first step of each, which compiles.

    In this order: an engine that is built discards what was compiled before it.

    Returns:
        The variants, and of those that failed the error in one line.

    Raises:
        OutOfMemoryError: of torch; variants are compared at one shape only.
    """
    failures: dict[str, str] = {}
    built = attempted(builders, failures)
    attempted(built, failures)
    return {name: step for name, step in built.items() if name not in failures}, failures


def attempted(actions: Mapping[str, Callable[[], Any]], failures: dict[str, str]) -> dict[str, Any]:
    """Return what each action returns, and add the errors of the others to `failures`.

    Raises:
        OutOfMemoryError: of torch.
    """
    import torch

    results = {}
    for name, action in actions.items():
        print(f"{name} ...", file=sys.stderr, flush=True)
        try:
            results[name] = action()
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            failures[name] = one_line(error)
            print(f"{name} failed: {failures[name]}", flush=True)
    return results


def alternate(
    variants: Mapping[str, Step], steps: int, *, device: str, clock: str = "wall"
) -> Timing:
    """Run every variant in turn for so many rounds, after those that warm up."""
    from gpu_clocks import GpuClocks

    now, count = CLOCKS[clock], STEPS_PER_ROUND[device]
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for name in list(variants) * WARM_UP_ROUNDS:
        variants[name]()
    wait_for(device)
    with GpuClocks() as gpu:
        for _ in range(steps):
            for name, step in variants.items():
                start = now()
                for _ in range(count):
                    step()
                wait_for(device)
                seconds[name].append((now() - start) / count)
    return Timing(seconds, gpu.medians)


def wait_for(device: str) -> None:
    """Wait until the device has finished; a CPU has."""
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


def release_memory() -> None:
    """Free what the variants of a shape held, compiled graphs too."""
    import torch

    gc.collect()
    torch.compiler.reset()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def one_line(error: BaseException) -> str:
    """Return the type and the first line of an error, not too long for a table."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:200].removesuffix(": ")


def fail_after_errors(results: list[dict[str, Any]]) -> None:
    """End with status 1 where a shape or a variant failed.

    Raises:
        SystemExit: with what failed.
    """
    failed = [str(found["shape"]) for found in results if "error" in found]
    failed += [name for found in results for name in found.get("failures", ())]
    if failed:
        sys.exit(f"error: failed: {'; '.join(failed)}")


def spread(seconds: list[float]) -> dict[str, float]:
    """Return median and quartiles; of a single step, its time."""
    low, median, high = statistics.quantiles(seconds * 2 if len(seconds) == 1 else seconds, n=4)
    return {"low": low, "median": median, "high": high}


def milliseconds(measured: dict[str, float]) -> tuple[str, str]:
    """Return median and quartiles as they are printed."""
    digits = 0 if measured["median"] > 0.05 else 2
    low, median, high = (f"{measured[key] * 1e3:.{digits}f}" for key in ("low", "median", "high"))
    return median, f"{low} - {high}"


def print_rows(title: str, headers: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Print a table under a title."""
    from tabulate import tabulate

    print(f"\n{title}")
    alignment = ("left", *["right"] * (len(headers) - 1))
    print(tabulate(rows, headers=headers, colalign=alignment, disable_numparse=True), flush=True)


def write_json(file: Path | None, numbers: Any) -> None:
    """Write the numbers with what they were measured on, complete or not at all."""
    from data_prep.files.atomic import save_text
    from pretrain.train.recording.provenance import environment

    if file is not None:
        save_text(file, json.dumps({"environment": environment(), "results": numbers}, indent=1))
