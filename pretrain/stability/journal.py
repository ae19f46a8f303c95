"""The folder `trouble` of a run: the record of its anomalies and of the decisions about them.

step_00000042.json    the last steps, the rows in question, the replay
decisions.jsonl       one line per decision, on the disk before it is acted on: a run that is killed
                      during a rewind leaves out the same rows when it is resumed
"""

import json
import math
import time
from pathlib import Path
from typing import Any

from data_prep.files.atomic import append_whole, remove_cut_line, save_text, write_through
from pretrain.config.errors import ConfigError
from pretrain.stability.detector import Decision

FOLDER = "trouble"
DECISIONS = "decisions.jsonl"


class AnomalyLog:
    """Reads and writes the folder; only rank 0 may write."""

    def __init__(self, run_folder: Path) -> None:
        self.folder = run_folder / FOLDER

    def decisions(self) -> list[Decision]:
        """Return all decisions of the run, oldest first.

        Raises:
            ConfigError: a line is damaged; an incomplete last line is ignored.
        """
        file = self.folder / DECISIONS
        if not file.exists():
            return []
        *lines, _ = file.read_text(encoding="utf-8").split("\n")
        found = []
        for number, line in enumerate(lines, 1):
            try:
                fields = json.loads(line)
                found.append(Decision(**{n: fields[n] for n in Decision.__dataclass_fields__}))
            except (ValueError, KeyError, TypeError):
                raise ConfigError(
                    f"{file}, line {number}, is not a decision: {line[:80]!r}; without it the run "
                    "would train on rows that it left out: fix the line, or remove it"
                ) from None
        return found

    def add_decision(self, decision: Decision, why: str) -> None:
        """Append a decision, and wait until it is on the disk."""
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / DECISIONS
        line = json.dumps({"at": time.strftime("%FT%T%z"), **vars(decision), "why": why})
        remove_cut_line(file)  # a line cut by a kill was never acted on
        append_whole(file, line + "\n")
        write_through(file)

    def write_recording(self, step: int, content: dict[str, Any]) -> Path:
        """Write a recording to a new file, atomically."""
        self.folder.mkdir(parents=True, exist_ok=True)
        file, number = self.folder / f"step_{step:08d}.json", 1
        while file.exists():
            number += 1
            file = self.folder / f"step_{step:08d}_{number}.json"
        save_text(file, json.dumps(_strict(content), indent=1, allow_nan=False) + "\n")
        return file


def _strict(value: Any) -> Any:
    """Replace numbers that JSON does not have by strings: "nan", "inf"."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _strict(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(part) for part in value]
    return value
