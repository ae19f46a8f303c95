"""The results of a session as one Markdown table, to be pasted into docs/RESULTS.md."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from parts import Part

COLUMNS = ("part", "what was measured", "result", "limit", "")


def write_summary(
    folder: Path,
    machine: Mapping[str, Any],
    parts: Sequence[Part],
    outcomes: Mapping[str, Mapping[str, Any] | None],
) -> None:
    """Write FOLDER/summary.md, complete or not at all."""
    partial = folder / "summary.partial"
    partial.write_text(summary(machine, parts, outcomes))
    partial.replace(folder / "summary.md")


def summary(
    machine: Mapping[str, Any],
    parts: Sequence[Part],
    outcomes: Mapping[str, Mapping[str, Any] | None],
) -> str:
    """Return machine and versions, and a row for each finding."""
    rows = [COLUMNS, ("---",) * len(COLUMNS)]
    for part in parts:
        outcome = outcomes.get(part.name)
        if outcome is None:
            rows.append((part.name, part.title, "", "", "not run yet"))
            continue
        findings = outcome["findings"]
        rows += [
            (part.name, found["measured"], found["result"], found["limit"], found["verdict"])
            for found in findings
        ]
        if outcome["reason"] is not None or not findings:
            rows.append((part.name, part.title, outcome["reason"] or "", "", outcome["status"]))
    lines = [f"| {' | '.join(map(cell, row))} |" for row in rows]
    return "\n".join([heading(machine), "", *lines, ""])


def heading(machine: Mapping[str, Any]) -> str:
    """Return a sentence on the machine, the code and the packages."""
    memory = f", {machine['memory_gib']} GiB" if machine["memory_gib"] else ""
    gpus = f"{machine['gpus']} x " if machine["gpus"] > 1 else ""
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    kind = "Dry run in small: no time here is a result. " if machine["dry_run"] else ""
    return (
        f"{kind}`benchmarks/gpu_session.sh`, {time.strftime('%F')}: {gpus}{machine['device']}"
        f"{memory}; commit {machine['commit']} (code {machine['code']}); {versions}."
    )


def cell(text: str) -> str:
    """Return a text that cannot end a cell of a Markdown table."""
    return " ".join(text.replace("|", "\\|").split())
