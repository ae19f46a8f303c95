"""Compares two runs bit for bit, except for what comes from a clock."""

import json
from pathlib import Path
from typing import Any

import torch

from pretrain.checkpoint.folders import newest_checkpoint
from pretrain.checkpoint.format import load_weights

# Everything else must be equal to the last bit.
CLOCK = frozenset(
    (
        "training_seconds",
        "tokens_per_second",
        "samples_per_second",
        "model_flops_utilisation",
        "processor_wait_share",
        "time_shares",
        "peak_memory_bytes",
    )
)
# ZeRO-3 prefetches weights by the order of earlier steps of the same process, unused where
# layer drop skips a block: its communication depends on when the process started.
FETCHED_AHEAD = frozenset(("payload_bytes_per_step",))
LINES = ("metrics.jsonl", "evals.jsonl")


def differences(folder: Path, reference: Path, ignored: frozenset[str] = CLOCK) -> list[str]:
    """Return where two finished runs differ: lines of metrics, result, final weights."""
    if not (folder / "result.json").is_file():
        return ["there is no result.json"]
    found = [text for name in LINES for text in _line_differences(folder, reference, name, ignored)]
    texts = [(run / "result.json").read_text() for run in (folder, reference)]
    results = [_read(text, ignored) for text in texts]
    if results[0] != results[1]:
        found.append(f"result.json: {_fields(*results)}")
    return found + weight_differences(folder, reference)


def weight_differences(folder: Path, reference: Path) -> list[str]:
    """Return the final weights that are not equal bit for bit, and files with other moments."""
    newest = [newest_checkpoint(run) for run in (folder, reference)]
    ours, theirs = map(load_weights, newest)
    if ours.keys() != theirs.keys():
        return [f"weights: {sorted(ours.keys() ^ theirs.keys())} are in one of the runs only"]
    wrong = [name for name in theirs if not torch.equal(ours[name], theirs[name])]
    found = [f"weights differ: {', '.join(wrong)}"] if wrong else []
    parts = [{file.name: file.read_bytes() for file in run.glob("*.safetensors")} for run in newest]
    if not found and parts[0] != parts[1]:
        found.append("Adam's moments differ")
    return found


def read_lines(folder: Path, name: str, ignored: frozenset[str] = CLOCK) -> list[dict[str, Any]]:
    """Return a file of lines without what cannot be equal."""
    return [_read(line, ignored) for line in (folder / name).read_text().splitlines()]


def _line_differences(
    folder: Path, reference: Path, name: str, ignored: frozenset[str]
) -> list[str]:
    ours, theirs = (read_lines(run, name, ignored) for run in (folder, reference))
    steps = [[line["step"] for line in lines] for lines in (ours, theirs)]
    if steps[0] != steps[1]:
        return [f"{name}: steps {steps[0]} instead of {steps[1]}"]
    pairs = zip(ours, theirs, strict=True)
    return [f"{name}, step {b['step']}: {_fields(a, b)}" for a, b in pairs if a != b]


def _fields(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    names = sorted(set(ours) | set(theirs))
    return ", ".join(
        f"{name} {ours.get(name)!r} instead of {theirs.get(name)!r}"
        for name in names
        if ours.get(name) != theirs.get(name)
    )


def _read(text: str, ignored: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in json.loads(text).items() if name not in ignored}
