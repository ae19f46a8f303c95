"""The tables of what each run measured and recorded: speed, memory, and provenance of launches."""

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pretrain.compare.convergence import Comparison
from pretrain.compare.launches import code_of
from pretrain.compare.runs import Arm, Run
from pretrain.compare.tables import Table
from pretrain.compare.timing import weighted_by_seconds
from pretrain.profiling.phase_names import SHARES
from pretrain.reports.words import amount, counted

NOT_RECORDED = "-"  # a run does not record what was added in a later version


def speed_table(comparison: Comparison) -> Table:
    """Return a row per run: speed, utilisation and its reference, and memory."""
    return Table(
        "Speed and memory of each run",
        ["run", "tokens/s", "utilisation", "of FLOP/s a rank", "peak memory"],
        [
            [str(run.folder), *_speed_cells(run_speed(run))]
            for arm in comparison.arms
            for run in arm.runs
        ],
    )


def share_table(comparison: Comparison) -> Table:
    """Return a row per run: shares of its time in training."""
    return Table(
        "Where the time of each run went",
        ["run", *SHARES, "waited for a processor"],
        [
            [str(run.folder), *_share_cells(run_speed(run))]
            for arm in comparison.arms
            for run in arm.runs
        ],
    )


def run_speed(run: Run) -> dict[str, Any]:
    """Return speed and memory of a run; None for what it did not record.

    Tokens/s are all tokens over all seconds of training. Utilisation and the shares of time are
    weighted by the training seconds of their lines of metrics; memory is the maximum.
    """
    rate = run.launches[-1].get("matrix_rate")
    memory = [row["peak_memory_bytes"] for row in run.metrics if "peak_memory_bytes" in row]
    return {
        "tokens_per_second": run.tokens_per_second,
        "model_flops_utilisation": weighted_by_seconds(run, "model_flops_utilisation"),
        "flops_per_second_of_a_rank": rate and rate["flops_per_second"],
        "peak_memory_bytes": max(memory) if memory else None,
        "time_shares": _time_shares(run),
        "processor_wait_share": weighted_by_seconds(run, "processor_wait_share"),
    }


def _time_shares(run: Run) -> dict[str, float] | None:
    seconds = dict.fromkeys(SHARES, 0.0)
    before = 0.0
    for row in run.metrics:
        for name, share in row.get("time_shares", {}).items():
            seconds[name] += share * (row["training_seconds"] - before)
        before = row["training_seconds"]
    total = sum(seconds.values())
    return {name: part / total for name, part in seconds.items()} if total else None


def _speed_cells(speed: dict[str, Any]) -> list[str]:
    return [
        f"{speed['tokens_per_second']:,.0f}",
        _cell(speed["model_flops_utilisation"], _percent),
        _cell(speed["flops_per_second_of_a_rank"], lambda value: amount(value, "flops")),
        _cell(speed["peak_memory_bytes"], lambda value: f"{amount(value, 'bytes')}B"),
    ]


def _share_cells(speed: dict[str, Any]) -> list[str]:
    shares = {**(speed["time_shares"] or {}), "waited": speed["processor_wait_share"]}
    return [_cell(shares.get(name), _percent) for name in (*SHARES, "waited")]


def _percent(value: float) -> str:
    return f"{value:.1%}"


def _cell(value: float | None, write: Callable[[float], str]) -> str:
    return NOT_RECORDED if value is None else write(value)


def provenance_table(arm: Arm) -> Table:
    """Return a row per recorded property, with a column for each launch of the arm."""
    launches = arm.launches
    rows = [
        ["after step", *(str(launch.get("resumed_from") or 0) for launch in launches)],
        ["code", *map(code_of, launches)],
        ["device", *map(_device, launches)],
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
    names = [f"{run.folder}, {launch['at']}" for run in arm.runs for launch in run.launches]
    return Table(arm.name, ["launch", *names], rows)


def commands(arm: Arm) -> list[str]:
    """Return the command of each launch that recorded one, as it is typed, each once."""
    words = [launch["command"] for launch in arm.launches if launch.get("command")]
    return list(dict.fromkeys(_typed(one) for one in words))


def _typed(command: Sequence[str]) -> str:
    """Return a command line; `python -m PACKAGE` gives a process the file that it runs."""
    program = Path(command[0])
    is_package = program.name == "__main__.py"
    begin = ["python", "-m", program.parent.name] if is_package else [command[0]]
    return shlex.join([*begin, *command[1:]])


def _device(launch: dict[str, Any]) -> str:
    hosts = launch.get("hosts", 1)
    on = f" on {counted(hosts, 'machine')}" if hosts > 1 else ""
    return f"{launch['device']}, {counted(launch['world_size'], 'rank')}{on}"


def _pairs(values: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items()) or NOT_RECORDED
