"""The folder `trouble` of a run: what went wrong, and what was decided about it.

step_00000042.json    a recording: the steps before, the rows, the inspection
decisions.jsonl       one line per decision, on the disk before it is acted on, so that a run that
                      is killed while it goes back skips the same rows when it is resumed
"""

import json
import math
import time
from pathlib import Path
from typing import Any

from data_prep.files.atomic import append_whole, remove_cut_line, save_text, write_through
from pretrain.config.errors import ConfigError
from pretrain.stability.detector import Decision, as_line

FOLDER = "trouble"
DECISIONS = "decisions.jsonl"


class AnomalyLog:
    """Reads and writes the folder; only the first rank may write."""

    def __init__(self, run_folder: Path) -> None:
        self.folder = run_folder / FOLDER

    def decisions(self) -> list[Decision]:
        """Return all decisions of the run, oldest first.

        Raises:
            ConfigError: a line is damaged; a last one that a kill cut short does not count.
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
                    f"{file}, line {number}, is no decision: {line[:80]!r}; the run would train "
                    "on rows that it had left out: fix the line, or remove it to train on them"
                ) from None
        return found

    def add_decision(self, decision: Decision, why: str) -> None:
        """Append a decision, and wait until it is on the disk."""
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / DECISIONS
        line = json.dumps({"at": time.strftime("%FT%T%z"), **as_line(decision), "why": why})
        remove_cut_line(file)  # what a kill left of one; nobody has acted on it
        append_whole(file, line + "\n")
        write_through(file)

    def write_recording(self, step: int, content: dict[str, Any]) -> Path:
        """Write a recording under a name of its own, complete or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        file, number = self.folder / f"step_{step:08d}.json", 1
        while file.exists():
            number += 1
            file = self.folder / f"step_{step:08d}_{number}.json"
        save_text(file, json.dumps(_strict(content), indent=1, allow_nan=False) + "\n")
        return file


def _strict(value: Any) -> Any:
    """Return a value with numbers that JSON does not have as words: "nan", "inf"."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _strict(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(part) for part in value]
    return value
