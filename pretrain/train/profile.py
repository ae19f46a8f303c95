"""The profile of a training step: by phase, by operator, and as a trace."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tabulate import tabulate

from data_prep.files.quoting import quoted
from pretrain.config.ds_config import compute_type
from pretrain.config.errors import ConfigError
from pretrain.config.json_objects import read_json_object
from pretrain.config.settings import RunSettings
from pretrain.data.shards import existing_shards
from pretrain.distributed.ranks import on_first_rank, start_ranks, stop_ranks
from pretrain.engine.launch import build_engine, check_machine, checked_settings
from pretrain.profiling.hardware import peak_flops
from pretrain.profiling.operators import costliest_operators, trace
from pretrain.schedules.run_thetas import last_theta
from pretrain.train.benchmark import MeasuredSteps, endless_batches
from pretrain.train.recording.provenance import environment

NUMBERS_FILE, TRACE_FILE = "profile.json", "trace.json.gz"
WARM_UP_STEPS, TRACED_STEPS = 3, 3


def profile(
    read: Callable[[], RunSettings], count: int, *, full_depth: bool, to: Path | None
) -> None:
    """Time and trace the steps, print two tables, and write them and the trace.

    Args:
        read: reads recipe and command line; called on the first rank.
        count: of timed steps.
        full_depth: whether every block runs in every step.
        to: folder to write; None: profiles/NAME.

    Raises:
        UserError: the run cannot be executed here, or the folder cannot be written.
    """
    ranks = start_ranks()
    try:
        settings, ds_config = on_first_rank(ranks, lambda: checked_settings(read(), ranks))
        on_first_rank(ranks, lambda: check_machine(settings, ds_config, ranks.device))
        folder = on_first_rank(ranks, lambda: _folder(to, settings))
        rate = peak_flops(ranks.device, compute_type(ds_config))
        shards = on_first_rank(ranks, lambda: existing_shards(settings))
        engine = build_engine(settings, ds_config, ranks)
        settings = engine.micro_batches.of(settings)
        batches = endless_batches(settings, shards, ranks)
        theta = 1.0 if full_depth else last_theta(settings)
        steps = MeasuredSteps(engine, batches, settings, theta)
        for _ in range(WARM_UP_STEPS):
            steps.take_one()
        metrics = steps.metrics(count, rate)
        # Tracing slows the steps down, so that these are others.
        if not ranks.is_first:
            for _ in range(TRACED_STEPS):
                steps.take_one()
        else:
            trace_file = folder / TRACE_FILE
            profiler = trace(steps.take_one, TRACED_STEPS, ranks.device, trace_file)
            numbers = {
                "name": settings.name,
                "rows": "random ids" if shards is None else f"rows of {shards.folder}",
                "ranks": ranks.world_size,
                "steps": count,
                "full_depth": full_depth,
                "execution": dataclasses.asdict(engine.execution),
                "micro_batches": engine.micro_batches.describe(),
                "matrix_rate": dataclasses.asdict(rate),
                "metrics": metrics,
                "operators": costliest_operators(profiler, TRACED_STEPS),
                "environment": environment(),
            }
            (folder / NUMBERS_FILE).write_text(json.dumps(numbers, indent=1) + "\n")
            print(describe(numbers, folder))
    finally:
        stop_ranks()


def describe(numbers: dict[str, Any], folder: Path) -> str:
    """Return the numbers of a profile as the tables that are printed."""
    metrics, steps = numbers["metrics"], numbers["steps"]
    milliseconds = 1000 * metrics["training_seconds"] / steps
    phases = [
        (name, f"{share * milliseconds:.2f}", f"{share:.1%}")
        for name, share in metrics["time_shares"].items()
    ]
    phases.append(("all", f"{milliseconds:.2f}", "100.0%"))
    operators = [
        (row["name"], f"{row['calls_per_step']:,.0f}", f"{row['milliseconds']:.2f}", row["share"])
        for row in numbers["operators"]
    ]
    return "\n\n".join(
        (
            f"{numbers['name']}: {steps} steps of {numbers['rows']}, {numbers['ranks']} rank(s)",
            _table(phases, ("phase", "ms a step", "share")),
            tabulate(_speed_rows(numbers), tablefmt="plain", disable_numparse=True),
            _table(
                [(*row[:3], f"{row[3]:.1%}") for row in operators],
                ("operator, traced", "calls a step", "ms a step", "share"),
            ),
            f"numbers: {folder / NUMBERS_FILE}\ntrace: {folder / TRACE_FILE}; open it in "
            "https://ui.perfetto.dev or chrome://tracing",
        )
    )


def _table(rows: list[Any], headers: tuple[str, ...]) -> str:
    alignment = ("left", *["right"] * (len(headers) - 1))
    return tabulate(rows, headers=headers, colalign=alignment, disable_numparse=True)


def _speed_rows(numbers: dict[str, Any]) -> list[tuple[str, str]]:
    metrics, steps, rate = numbers["metrics"], numbers["steps"], numbers["matrix_rate"]
    execution = numbers["execution"]
    exchanged = [
        f"{kind} {size / 2**20:,.2f} MiB"
        for kind, size in metrics["payload_bytes_per_step"].items()
    ]
    return [
        ("attention", f"{execution['attention']}: {execution['reason']}"),
        ("blocks", "compiled" if execution["compiles_blocks"] else "as written"),
        ("micro-batches", numbers["micro_batches"]),
        ("tokens/s", f"{metrics['tokens_per_second']:,.0f}"),
        ("samples/s", f"{metrics['samples_per_second']:,.1f}"),
        ("FLOPs per step, full depth", f"{metrics['full_depth_flops'] / steps:.3e}"),
        ("FLOPs per step, realised", f"{metrics['flops'] / steps:.3e}"),
        (
            "model FLOPs utilisation",
            f"{metrics['model_flops_utilisation']:.1%} of {rate['flops_per_second']:.3e} FLOP/s a "
            f"rank ({rate['source']})",
        ),
        ("memory high-water mark", f"{metrics['peak_memory_bytes'] / 2**20:,.1f} MiB"),
        ("exchanged per step and rank", ", ".join(exchanged) or "nothing"),
    ]


def _refuse_other_profile(folder: Path, name: str) -> None:
    """Refuse to write over what is not an earlier profile of this name."""
    numbers, trace_file = folder / NUMBERS_FILE, folder / TRACE_FILE
    whose = read_json_object(numbers).get("name") if numbers.is_file() else None
    if whose != name and (numbers.exists() or trace_file.exists()):
        found = numbers if numbers.exists() else trace_file
        kind = "no profile" if whose is None else f"of {quoted(whose)}"
        raise ConfigError(f"{found} is {kind}; choose another folder with --to")


def _folder(given: Path | None, settings: RunSettings) -> Path:
    folder = given or Path("profiles") / settings.name
    _refuse_other_profile(folder, settings.name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot write the profile to {folder}: {error.strerror}; choose another one with --to"
        ) from None
    return folder
