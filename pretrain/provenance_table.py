"""What the launches of an arm recorded about themselves, for the report."""

import shlex
from typing import Any

from pretrain.convergence import Arm
from pretrain.launch_differences import code_of

NOT_RECORDED = "-"


def provenance_headers(arm: Arm) -> list[str]:
    """Return a name for each launch of an arm, after that of the first column."""
    return ["launch", *(f"{run.folder}, {launch['at']}" for run, launch in _launches(arm))]


def provenance_rows(arm: Arm) -> list[list[str]]:
    """Return a row per thing that was recorded, with a cell for each launch."""
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
