"""The profile of a training step: time by phase, operators, and a trace, by torch.profiler."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tabulate import tabulate
from torch.profiler import ProfilerActivity
from torch.profiler import profile as traced

from pretrain.config.errors import ConfigError
from pretrain.config.settings import RunSettings
from pretrain.distributed.ranks import on_first_rank, start_ranks, stop_ranks
from pretrain.schedules.run_thetas import last_theta
from pretrain.train.measured_steps import MeasuredSteps

TRACE_FILE = "trace.json.gz"
WARM_UP_STEPS, TRACED_STEPS, LISTED = 3, 3, 15


def profile(
    read: Callable[[], RunSettings], count: int, *, full_depth: bool, to: Path | None
) -> None:
    """Time and trace the steps, print two tables, and write the trace.

    Args:
        read: reads recipe and command line; called on the first rank.
        count: of timed steps.
        full_depth: whether every block runs in every step.
        to: folder of the trace; None: profiles/NAME.

    Raises:
        UserError: the run cannot be executed here, or the folder cannot be written.
    """
    ranks = start_ranks()
    try:
        settings = on_first_rank(ranks, read)
        folder = on_first_rank(ranks, lambda: _made(to or Path("profiles") / settings.name))
        steps = MeasuredSteps(settings, ranks, (lambda _: 1.0) if full_depth else last_theta)
        steps.metrics(WARM_UP_STEPS)
        metrics = steps.metrics(count)
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else it prints when it starts and stops
        on_gpu = ranks.device == "cuda"
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
        # Tracing slows steps down: these are others than the timed ones.
        with traced(activities=activities) as profiler:
            for _ in range(TRACED_STEPS):
                steps.take_one()
        if ranks.is_first:
            profiler.export_chrome_trace(str(folder / TRACE_FILE))
            print(f"{settings.name}: {count} steps of {steps.source}, {ranks.world_size} rank(s)")
            print(describe(metrics, steps.progress.tokens_per_step, steps.rows(metrics)))
            order = "self_cuda_time_total" if on_gpu else "self_cpu_time_total"
            averages = profiler.key_averages()
            print(f"\n{averages.table(sort_by=order, row_limit=LISTED, max_name_column_width=40)}")
            print(f"trace: {folder / TRACE_FILE}; open it in https://ui.perfetto.dev")
    finally:
        stop_ranks()


def describe(metrics: dict[str, Any], tokens_per_step: int, rows: list[tuple[str, str]]) -> str:
    """Return the metrics of steps as a table of phases, and these rows."""
    milliseconds = 1000 * tokens_per_step / metrics["tokens_per_second"]
    shares = {**metrics["time_shares"], "all": 1.0}
    phases = [(name, f"{each * milliseconds:.2f}", f"{each:.1%}") for name, each in shares.items()]
    table = tabulate(
        phases,
        headers=("phase", "ms a step", "share"),
        colalign=("left", "right", "right"),
        disable_numparse=True,
    )
    return f"{table}\n\n{tabulate(rows, tablefmt='plain', disable_numparse=True)}"


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot write the profile to {folder}: {error.strerror}; choose another one with --to"
        ) from None
    return folder
