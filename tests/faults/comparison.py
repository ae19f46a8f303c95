"""Compares two runs bit for bit, except for what comes from a clock."""

import json
from pathlib import Path
from typing import Any

from pretrain.checkpoint.folders import newest_checkpoint
from tests.same_numbers.comparison import CLOCK
from tests.same_numbers.comparison import differences as differences_of_files

FILES = ("metrics.jsonl", "evals.jsonl", "result.json")


def differences(folder: Path, reference: Path, ignored: frozenset[str] = CLOCK) -> list[str]:
    """Return where two finished runs differ: metrics, result, final weights and moments."""
    weights = f"{newest_checkpoint(reference).name}/*.safetensors"
    return differences_of_files(reference, folder, (*FILES, weights), ignored)


def read_lines(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return a file of lines."""
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]
