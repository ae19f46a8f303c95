"""The tables of a comparison: cost of reaching the target, speed, and provenance of launches."""

import shlex
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from tabulate import tabulate

from pretrain.compare.convergence import AXES, Arm, Comparison, Run, crossing
from pretrain.compare.notes import code_of
from pretrain.profiling.step_timer import SHARES

NOT_RECORDED = "-"  # a run does not record what was added in a later version


def table(comparison: Comparison) -> str:
    """Return the comparison as a table for the terminal."""
    return tabulate(
        table_rows(comparison),
        headers=table_headers(comparison),
        colalign=("left", *["right"] * 8),
        disable_numparse=True,
    )


def table_headers(comparison: Comparison) -> list[str]:
    """Return the names of the columns of `table_rows`."""
    to_target = _to_target(comparison)
    return ["arm", "parameters", "held-out loss", *to_target, "sooner in time", "tokens/s"]


def table_rows(comparison: Comparison) -> list[list[str]]:
    """Return a row per arm: size, final loss, what the target took, and speed."""
    rows = []
    for arm in comparison.arms:
        reached = {axis: comparison.reached(arm, axis) for axis in AXES}
        speed_up = comparison.speed_up(arm, "training_seconds")
        finished = [run.result for run in arm.runs if run.result is not None]
        rows.append(
            [
                arm.name if len(arm.runs) == 1 else f"{arm.name} ({len(arm.runs)} seeds)",
                amount(finished[0]["parameters"], "parameters") if finished else "-",
                _spread([run.final_loss for run in arm.runs]),
                *(amount(reached[axis], axis) for axis in AXES),
                "-" if speed_up is None else f"{speed_up:.2f} x",
                f"{arm.median(lambda run: run.tokens_per_second):,.0f}",
            ]
        )
    return rows


def run_headers(comparison: Comparison) -> list[str]:
    """Return the names of the columns of `run_rows`."""
    return ["run", "seed", "held-out loss", "best", *_to_target(comparison)]


def run_rows(comparison: Comparison) -> list[list[str]]:
    """Return a row per run; the medians of `table_rows` are over these."""
    return [
        [
            str(run.folder),
            str(run.settings["seed"]),
            f"{run.final_loss:.3f}",
            f"{run.best_loss:.3f}",
            *(amount(crossing(run, comparison.target, axis), axis) for axis in AXES),
        ]
        for arm in comparison.arms
        for run in arm.runs
    ]


def amount(value: float | None, axis: str) -> str:
    """Return an amount of an axis with its unit; None is "not reached"."""
    if value is None:
        return "not reached"
    if axis == "training_seconds":
        minutes, seconds = divmod(round(value), 60)
        hours, minutes = divmod(minutes, 60)
        if hours:
            return f"{hours} h {minutes:02d} min"
        return f"{minutes} min {seconds:02d} s" if minutes else f"{value:.1f} s"
    if axis == "step":
        return f"{value:,.0f}"
    for size, name in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.2f} {name}"
    return f"{value:.0f}"


def _to_target(comparison: Comparison) -> list[str]:
    return [f"{name} to {comparison.target:.3f}" for name in AXES.values()]


def _spread(values: Sequence[float]) -> str:
    median = f"{statistics.median(values):.3f}"
    return median if len(values) == 1 else f"{median} ({min(values):.3f} - {max(values):.3f})"


def speed_headers() -> list[str]:
    """Return the names of the columns of `speed_rows`."""
    return ["run", "tokens/s", "utilisation", "of FLOP/s a rank", "peak memory", *SHARES]


def speed_rows(comparison: Comparison) -> list[list[str]]:
    """Return a row per run: speed, utilisation and its reference, memory, shares of time."""
    return [
        [str(run.folder), *_cells(run_speed(run))] for arm in comparison.arms for run in arm.runs
    ]


def run_speed(run: Run) -> dict[str, Any]:
    """Return speed and memory of a run; None for what it did not record.

    Speed and utilisation are medians over the lines of metrics, memory is the maximum, and the
    shares of time are weighted by the training seconds of their lines.
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
    return NOT_RECORDED if value is None else write(value)


def provenance_headers(arm: Arm) -> list[str]:
    """Return the names of the columns of `provenance_rows`: one per launch of the arm."""
    return ["launch", *(f"{run.folder}, {launch['at']}" for run, launch in _launches(arm))]


def provenance_rows(arm: Arm) -> list[list[str]]:
    """Return a row per recorded property, with a cell for each launch."""
    launches = [launch for _, launch in _launches(arm)]
    rows = [
        ["after step", *(str(launch.get("resumed_from") or 0) for launch in launches)],
        ["code", *map(code_of, launches)],
        ["device", *(_device(launch) for launch in launches)],
    ]
    for title, name in (
        ("precision", "precision"),
        ("ZeRO stage", "zero_stage"),
        ("threads a rank", "threads"),
        ("rows", "training_data"),
        ("manifest", "manifest"),
        ("tokenizer", "tokenizer"),
    ):
        rows.append([title, *(str(launch.get(name, NOT_RECORDED)) for launch in launches)])
    for title, name in (("versions", "versions"), ("variables", "variables")):
        rows.append([title, *(_pairs(launch.get(name, {})) for launch in launches)])
    commands = (shlex.join(launch.get("command", ())) for launch in launches)
    rows.append(["command", *(command or NOT_RECORDED for command in commands)])
    return rows


def _launches(arm: Arm) -> list[tuple[Any, dict[str, Any]]]:
    return [(run, launch) for run in arm.runs for launch in run.launches]


def _device(launch: dict[str, Any]) -> str:
    hosts = launch.get("hosts", 1)
    on = f" on {hosts} machines" if hosts > 1 else ""
    return f"{launch['device']}, {launch['world_size']} rank(s){on}"


def _pairs(values: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items()) or NOT_RECORDED
