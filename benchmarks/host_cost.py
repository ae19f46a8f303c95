"""In which share of a training step does the GPU wait for the host?

    python benchmarks/host_cost.py [--shapes 12,768,512,64 12,768,128,16] [--json FILE]

TUPE-R, PreLN, with the coins of layer drop, as a run has them at its end. Three times of a step:
`step`, of several in a row; `host`, until the host has issued one while the device is idle; and
`busy`, in which at least one kernel or copy runs, by the profiler. The GPU waits for what is left
of `step`. On a CPU, which computes itself, there is nothing to wait for, and only `step` is given.
"""

import itertools
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

from side_by_side import (
    STEPS_PER_ROUND,
    alternate,
    parser,
    print_rows,
    spread,
    time_shapes,
    wait_for,
)

from data_prep.files.program import run_program

CPU_SHAPES = [(4, 256, 128, 8)]
# Micro-batches of the papers' recipes, for GPUs of their time, come last.
GPU_SHAPES = [(12, 768, 512, 64), (12, 768, 128, 256), (12, 768, 128, 16)]
TUPE_R = ("--model.positions", "tupe-r", "--model.norm", "pre")
THETA_BAR = 0.5
# Of which a round, the issued steps and the traced ones are whole multiples.
TOSSES = STEPS_PER_ROUND["cuda"]
TRACED_STEPS = 2 * TOSSES


def main() -> None:
    """Measure all shapes and print a table of each."""
    time_shapes(parser(__doc__, steps=11), measure, cpu=CPU_SHAPES, gpu=GPU_SHAPES)


def measure(chosen: tuple[int, int, int, int], ranks: Any, arguments: Any) -> dict[str, Any]:
    """Measure one shape, print its table and return its numbers."""
    from layer_drop import coins, dropping_words
    from training_step import OurStep, Shape

    shape = Shape(*chosen)
    words = dropping_words(THETA_BAR)
    toss = coins(shape, words, THETA_BAR, [])
    # Over and over, so that the steps that are timed, issued and traced are the same work.
    tossed = itertools.cycle([toss() for _ in range(TOSSES)])
    step = OurStep(shape, "auto", ranks, *TUPE_R, *words, scales=tossed.__next__)
    timing = alternate({"step": step}, arguments.steps, device=ranks.device)
    found: dict[str, Any] = {"step": spread(timing.seconds["step"])["median"]}
    if ranks.device == "cuda":
        found["host"] = issue_seconds(step, arguments.steps * STEPS_PER_ROUND[ranks.device])
        found["busy"] = busy_seconds(step)
        found["waiting_share"] = max(0.0, 1 - found["busy"] / found["step"])
    row = [f"{found[key] * 1e3:.1f}" if key in found else "" for key in ("step", "host", "busy")]
    share = f"{found['waiting_share']:.1%}" if "waiting_share" in found else "no GPU"
    headers = ("step ms", "host ms", "busy ms", "GPU waits")
    print_rows(str(shape), headers, [(*row, share)])
    return {"shape": chosen, **found, "gpu": timing.gpu}


def issue_seconds(step: Callable[[], object], count: int) -> float:
    """Return the median time in which the host issues a step to an idle device."""
    durations = []
    for _ in range(count):
        wait_for("cuda")
        start = time.perf_counter()
        step()
        durations.append(time.perf_counter() - start)
    wait_for("cuda")
    return statistics.median(durations)


def busy_seconds(step: Callable[[], object]) -> float:
    """Return the time per step in which at least one kernel or copy runs on the GPU."""
    from torch._C._autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    wait_for("cuda")
    # Without the activities of the CPU, which would slow the host down.
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(TRACED_STEPS):
            step()
        wait_for("cuda")
    spans = [
        (event.time_range.start, event.time_range.end)
        for event in profiler.events()
        if event.device_type == DeviceType.CUDA and not event.is_user_annotation
    ]
    return covered(spans) / 1e6 / TRACED_STEPS


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Return the length that intervals cover together, counted once where they overlap."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


if __name__ == "__main__":
    run_program(lambda _: main())
