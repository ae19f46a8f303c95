"""Show where the time of a training step goes: by phase, by operator, and as a trace.

    tupelo profile RECIPE                       ten steps on this machine
    tupelo profile RECIPE --steps 50 --full-depth

Every setting of the recipe can be changed; --steps is the number of timed steps here. Blocks are
skipped as often as at the end of the run, where layer drop has reached its steady state. The rows
are real ones where the shards exist, else random ids, which cost the same. The weights stay as
they are.
"""

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

from tabulate import tabulate

from pretrain.config.ds_config import compute_type
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import add_settings
from pretrain.config.settings import RunSettings
from pretrain.distributed.ranks import on_first_rank, start_ranks, stop_ranks
from pretrain.engine.launch import build_engine, checked_settings
from pretrain.profiling.hardware import peak_flops
from pretrain.profiling.operators import costliest_operators, trace
from pretrain.schedules.layer_drop import theta_at
from pretrain.train.benchmark import MeasuredSteps, endless_batches, existing_shards
from pretrain.train.provenance import environment

WARM_UP_STEPS, TIMED_STEPS, TRACED_STEPS = 3, 10, 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tupelo profile`."""
    parser.add_argument("--to", type=Path, help="default: profiles/NAME of the recipe")
    parser.add_argument("--full-depth", action="store_true", help="run every block at every step")
    parser.set_defaults(source=add_settings(parser))


def main(arguments: argparse.Namespace) -> None:
    """Time and trace the steps, print two tables, and write them and the trace."""
    count = take_count(arguments)
    ranks = start_ranks()
    try:
        settings, ds_config = on_first_rank(
            ranks, lambda: checked_settings(arguments, ranks, ranks.device)
        )
        folder = on_first_rank(ranks, lambda: _folder(arguments.to, settings))
        rate = peak_flops(ranks.device, compute_type(ds_config))
        shards = on_first_rank(ranks, lambda: existing_shards(settings))
        engine = build_engine(settings, ds_config, ranks)
        batches = endless_batches(settings, shards, ranks)
        theta = keep_ratio_at_the_end(settings, full_depth=arguments.full_depth)
        steps = MeasuredSteps(engine, batches, settings, theta)
        for _ in range(WARM_UP_STEPS):
            steps.take_one()
        metrics = steps.metrics(count, rate)
        # Tracing slows the steps down, so that these are others.
        if not ranks.is_first:
            for _ in range(TRACED_STEPS):
                steps.take_one()
        else:
            trace_file = folder / "trace.json.gz"
            profiler = trace(steps.take_one, TRACED_STEPS, ranks.device, trace_file)
            numbers = {
                "name": settings.name,
                "rows": "random ids" if shards is None else f"rows of {shards.folder}",
                "ranks": ranks.world_size,
                "steps": count,
                "full_depth": arguments.full_depth,
                "execution": dataclasses.asdict(engine.execution),
                "matrix_rate": dataclasses.asdict(rate),
                "metrics": metrics,
                "operators": costliest_operators(profiler, TRACED_STEPS),
                "environment": environment(),
            }
            (folder / "profile.json").write_text(json.dumps(numbers, indent=1) + "\n")
            print(describe(numbers, folder))
    finally:
        stop_ranks()


def take_count(arguments: argparse.Namespace) -> int:
    """Return the number of timed steps, and take it from the settings of the run.

    Raises:
        ConfigError: it is not a positive number.
    """
    given = str(vars(arguments).pop("steps", TIMED_STEPS))
    if not given.isdecimal() or int(given) == 0:
        raise ConfigError(f"--steps {given} must be a number of steps to time, at least 1")
    return int(given)


def keep_ratio_at_the_end(settings: RunSettings, *, full_depth: bool) -> float:
    """Return theta at the end of the schedule, or 1 if every block is to run."""
    return 1.0 if full_depth else theta_at(settings.steps, settings.layer_drop, settings.steps)


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
            f"numbers: {folder / 'profile.json'}\ntrace: {folder / 'trace.json.gz'}; open it in "
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


def _folder(given: Path | None, settings: RunSettings) -> Path:
    folder = given or Path("profiles") / settings.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot write the profile to {folder}: {error.strerror}; choose another one with --to"
        ) from None
    return folder
