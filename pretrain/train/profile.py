"""The profile of training steps: phases, operators, and a trace, by torch.profiler."""

import os
from collections.abc import Callable
from pathlib import Path

from torch.profiler import ProfilerActivity
from torch.profiler import profile as traced

from pretrain.config.settings import RunSettings
from pretrain.distributed.failures import joined_ranks
from pretrain.distributed.ranks import on_first_rank
from pretrain.train.measured_steps import MeasuredSteps

TRACE_FILE = "trace.json.gz"
WARM_UP_STEPS, LISTED = 3, 30
FIRST = ("phase/", "gloo:", "nccl:")  # in the table


def profile(read: Callable[[], RunSettings], count: int, to: Path | None) -> None:
    """Trace steps, print the table of torch.profiler, and write the trace.

    Args:
        read: reads recipe and command line; called on the first rank.
        count: of traced steps.
        to: folder of the trace; None: profiles/NAME.

    Raises:
        UserError: the run cannot be executed here.
    """
    with joined_ranks() as ranks:
        settings = on_first_rank(ranks, read)
        folder = to or Path("profiles") / settings.name
        on_first_rank(ranks, lambda: folder.mkdir(parents=True, exist_ok=True))
        steps = MeasuredSteps(settings, ranks)
        steps.metrics(WARM_UP_STEPS)
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else it prints when it starts and stops
        on_gpu = ranks.device == "cuda"
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
        with traced(activities=activities) as profiler:
            for _ in range(count):
                steps.take_one()
        if ranks.is_first:
            profiler.export_chrome_trace(str(folder / TRACE_FILE))
            print(f"{settings.name}: {count} steps of {steps.source}, {ranks.world_size} rank(s)")
            print(steps.engine.describe())
            averages = profiler.key_averages()
            averages.sort(
                key=lambda one: (
                    not one.key.startswith(FIRST),
                    -(one.device_time_total if on_gpu else one.cpu_time_total),
                )
            )
            print(averages.table(sort_by=None, row_limit=LISTED, max_name_column_width=40))
            print(f"trace: {folder / TRACE_FILE}; open it in https://ui.perfetto.dev")
