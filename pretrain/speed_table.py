"""How fast each run of a comparison was, and where its time went, for the report."""

import statistics
from collections.abc import Callable
from typing import Any

from pretrain.comparison_table import amount
from pretrain.convergence import Comparison, Run
from pretrain.phases import SHARES

# What stands for something that a run did not log: it was made before that was measured.
UNKNOWN = "-"


def speed_headers() -> list[str]:
    """Return the names of the columns of `speed_rows`."""
    return ["run", "tokens/s", "utilisation", "of FLOP/s a rank", "peak memory", *SHARES]


def speed_rows(comparison: Comparison) -> list[list[str]]:
    """Return a row per run: speed, utilisation and what it refers to, memory, shares of time."""
    return [
        [str(run.folder), *_cells(run_speed(run))] for arm in comparison.arms for run in arm.runs
    ]


def run_speed(run: Run) -> dict[str, Any]:
    """Return what the log lines of a run say; None for what they do not.

    Speed and utilisation are medians over the lines, memory is the highest, and the shares of
    time are those of all time that was logged with them.
    """
    rate = run.launches[-1].get("matrix_rate")
    return {
        "tokens_per_second": _over_lines(run, "tokens_per_second", statistics.median),
        "model_flops_utilisation": _over_lines(run, "model_flops_utilisation", statistics.median),
        "flops_per_second_of_a_rank": rate and rate["flops_per_second"],
        "peak_memory_bytes": _over_lines(run, "peak_memory_bytes", max),
        "time_shares": _time_shares(run),
    }


def _over_lines(run: Run, name: str, of: Callable[[list[float]], float]) -> float | None:
    values = [row[name] for row in run.metrics if name in row]
    return of(values) if values else None


def _time_shares(run: Run) -> dict[str, float] | None:
    seconds = dict.fromkeys(SHARES, 0.0)
    before = 0.0
    for row in run.metrics:
        for name, share in row.get("time_shares", {}).items():
            seconds[name] += share * (row["training_seconds"] - before)
        before = row["training_seconds"]
    total = sum(seconds.values())
    return {name: part / total for name, part in seconds.items()} if total else None


def _cells(speed: dict[str, Any]) -> list[str]:
    shares = speed["time_shares"] or {}
    return [
        _cell(speed["tokens_per_second"], lambda value: f"{value:,.0f}"),
        _cell(speed["model_flops_utilisation"], lambda value: f"{value:.1%}"),
        _cell(speed["flops_per_second_of_a_rank"], lambda value: amount(value, "flops")),
        _cell(speed["peak_memory_bytes"], lambda value: f"{amount(value, 'bytes')}B"),
        *(_cell(shares.get(name), lambda value: f"{value:.1%}") for name in SHARES),
    ]


def _cell(value: float | None, write: Callable[[float], str]) -> str:
    return UNKNOWN if value is None else write(value)
