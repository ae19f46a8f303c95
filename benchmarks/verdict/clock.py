"""A comparison with transformers as a study: both sides, each with its losses by the clock."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from studies import DIGITS, TRIALS, Study, StudyRun, condense

from pretrain.compare.runs import read_run

THEIRS, OURS = "theirs", "ours"  # how the names of run folders begin
RESULT = "against.json"
ARM = "transformers"
PEAK = "learning_rate.peak"


def is_comparison(folder: Path) -> bool:
    """Return whether this is a folder of benchmarks/against_hugging_face."""
    return bool(_ended(folder, OURS))


def read_comparison(folder: Path, name: str, scores: Mapping[str, Mapping[str, float]]) -> Study:
    """Return both sides of a comparison, trials and reported runs that have ended.

    Args:
        folder: of benchmarks/against_hugging_face.
        name: of the study.
        scores: of other measures in percent, by the name of a run's folder and by measure.
    """
    folders = _ended(folder, OURS)
    ours = condense(name, [read_run(found) for found in folders], scores)
    runs = [_our_run(run, found) for run, found in zip(ours.runs, folders, strict=True)]
    theirs = [_their_run(found, scores.get(found.name, {})) for found in _ended(folder, THEIRS)]
    return replace(ours, runs=(*theirs, *runs))


def _ended(folder: Path, side: str) -> list[Path]:
    """Return the folders of the runs of a side that have ended, trials last."""
    files = [*folder.glob(f"{side}-*/{RESULT}"), *folder.glob(f"{TRIALS}/{side}-*/{RESULT}")]
    return sorted((file.parent for file in files), key=lambda found: (len(found.parts), found))


def _their_run(folder: Path, scores: Mapping[str, float]) -> StudyRun:
    result = _result(folder)
    return StudyRun(
        ARM,
        result["seed"],
        folder.parent.name == TRIALS,
        {PEAK: result[PEAK], "precision": result["precision"], "threads": result["threads"]},
        0.0,
        tuple((step, round(loss, DIGITS)) for step, _, loss in result["curve"]),
        "",
        scores,
        _seconds(result),
    )


def _our_run(run: StudyRun, folder: Path) -> StudyRun:
    result = _result(folder)
    settings = {**run.settings, PEAK: result[PEAK], "threads": result["threads"]}
    return replace(run, seconds=_seconds(result), settings=settings)


def _result(folder: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    return result


def _seconds(result: Mapping[str, Any]) -> tuple[float, ...]:
    return tuple(round(seconds, 1) for _, seconds, _ in result["curve"])
