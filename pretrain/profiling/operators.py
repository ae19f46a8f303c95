"""Traces training steps operator by operator, and lists where their time goes."""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

LISTED = 15  # operators


def trace(
    step: Callable[[], None], count: int, device: Literal["cpu", "cuda"], file: Path
) -> profile:
    """Take `count` steps, record every operator in them and write a Chrome trace."""
    # By default it writes a line to stderr when it starts and another when it stops.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    activities = [ProfilerActivity.CPU]
    if device == "cuda":
        activities.append(ProfilerActivity.CUDA)
    profiler = profile(activities=activities)
    with profiler:
        for _ in range(count):
            step()
    profiler.export_chrome_trace(str(file))
    return profiler


def costliest_operators(profiler: profile, steps: int) -> list[dict[str, Any]]:
    """Return the operators by the time spent in themselves, without what they call.

    Where a GPU was traced they are its kernels, and the time is the GPU's.
    """
    events = profiler.key_averages()
    kernels = [
        (kernel_name(event.key), event.count, event.self_device_time_total)
        for event in events
        if event.device_type == DeviceType.CUDA and not event.is_user_annotation
    ]
    operators = [
        (operator_name(event.key), event.count, event.self_cpu_time_total)
        for event in events
        if event.device_type == DeviceType.CPU
    ]
    return largest(kernels or operators, steps)


def largest(costs: Iterable[tuple[str, int, float]], steps: int) -> list[dict[str, Any]]:
    """Add up (name, calls, microseconds) by name and return the most expensive ones."""
    calls: dict[str, int] = defaultdict(int)
    microseconds: dict[str, float] = defaultdict(float)
    for name, count, cost in costs:
        calls[name] += count
        microseconds[name] += cost
    total = sum(microseconds.values())
    names = sorted(microseconds, key=lambda name: -microseconds[name])[:LISTED]
    return [
        {
            "name": name,
            "calls_per_step": calls[name] / steps,
            "milliseconds": microseconds[name] / 1000 / steps,
            "share": microseconds[name] / total,
        }
        for name in names
    ]


def operator_name(key: str) -> str:
    """Return what an operator is listed under: in place or not, and autograd's nodes as one."""
    if key.startswith("phase/"):
        return f"{key}, outside of operators"  # Python, DeepSpeed, waiting for other ranks
    if key.startswith("autograd::") or key.endswith(("Backward", "Backward0", "Backward1")):
        return "autograd's nodes"
    return key.removesuffix("_") if key.startswith("aten::") else key


def kernel_name(key: str) -> str:
    """Return the name of a kernel without its template arguments and parameters."""
    return key.removeprefix("void ").partition("<")[0].partition("(")[0]
