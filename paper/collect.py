"""Records of the finished runs of a sweep, or of benchmarks/against_hugging_face."""

import csv
import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from records import Study, StudyRun, beyond, common

from pretrain.reports.compare.runs import Run, read_run

TRIALS = "trials"  # the folder of a sweep's trials
DIGITS = 5  # of a loss in nats, far below the noise of a seed
PEAK = "learning_rate.peak"

# Of the place of a run, not of what was trained.
LEFT_OUT = ("name", "seed", "loggers", "log_project", "data.shards", "data.corpus")

Scores = Mapping[str, Mapping[str, float]]  # in percent, by the name of a run's folder


def collect(folder: Path, name: str, scores: Scores) -> Study:
    """Return the study of the runs and trials of a folder that have ended; name the others.

    Raises:
        SystemExit: there is none, or they predicted different words.
    """
    runs = []
    for file in _found(folder, "*", "run.json"):
        try:
            run = read_run(file.parent)
        except ValueError as error:
            print(f"left out: {error}")
            continue
        if run.is_unfinished:
            print(f"left out: {run.folder} has not finished")
        else:
            runs.append(run)
    if not runs:
        raise SystemExit(f"{folder} holds no finished run")
    study = condense(name, runs, scores)
    theirs = tuple(
        _their_run(file, scores.get(file.parent.name, {}))
        for file in _found(folder, "theirs-*", "against.json")
    )
    return replace(study, runs=(*theirs, *study.runs))


def _found(folder: Path, run: str, name: str) -> list[Path]:
    """Return the files of this name in the folders of runs, trials last."""
    files = [*folder.glob(f"{run}/{name}"), *folder.glob(f"{TRIALS}/{run}/{name}")]
    return sorted(files, key=lambda file: (len(file.parts), file))


def condense(name: str, runs: Sequence[Run], scores: Scores) -> Study:
    """Return the study of finished runs.

    Raises:
        SystemExit: they predicted different words.
    """
    launches = [launch for run in runs for launch in run.launches]
    if len({launch["held_out"] for launch in launches}) > 1:
        raise SystemExit(f"the runs of {name} were evaluated on different words")
    settings = [beyond(run.settings, dict.fromkeys(LEFT_OUT)) for run in runs]
    shared = common(settings)
    return Study(
        name,
        re.sub(r"[^\s,]*/", "", launches[0]["source"]),  # without folders
        launches[0]["held_out"],
        tuple(dict.fromkeys(launch["device"] for launch in launches)),
        tuple(dict.fromkeys(launch["precision"] for launch in launches)),
        launches[0]["versions"],
        launches[0]["frequency_entropy"],
        shared,
        tuple(
            _our_run(run, beyond(own, shared), scores.get(run.folder.name, {}))
            for run, own in zip(runs, settings, strict=True)
        ),
    )


def _our_run(run: Run, settings: Mapping[str, Any], scores: Mapping[str, float]) -> StudyRun:
    losses = [*(row["loss"] for row in run.evaluations[:-1]), run.final_loss]
    return StudyRun(
        run.settings["name"],
        run.settings["seed"],
        run.folder.parent.name == TRIALS,
        settings,
        run.evaluations[-1]["flops"],
        tuple(
            (row["step"], round(loss, DIGITS))
            for row, loss in zip(run.evaluations, losses, strict=True)
        ),
        run.launches[-1]["commit"],
        scores,
        tuple(round(row["training_seconds"], 1) for row in run.evaluations),
    )


def _their_run(file: Path, scores: Mapping[str, float]) -> StudyRun:
    """Return a run of transformers' Trainer, which counts no FLOPs."""
    result = json.loads(file.read_text(encoding="utf-8"))
    return StudyRun(
        result["theirs"],
        result["seed"],
        file.parent.parent.name == TRIALS,
        {name: result[name] for name in (PEAK, "precision", "threads")},
        0.0,
        tuple((step, round(loss, DIGITS)) for step, _, loss in result["curve"]),
        "",
        scores,
        tuple(round(seconds, 1) for _, seconds, _ in result["curve"]),
    )


def read_scores(words: str) -> dict[str, dict[str, float]]:
    """Return the score of each run on each task in percent.

    Args:
        words: the file, or NAME=FILE; then scores are named `TASK, NAME`. It is table.csv of
            `tupelo finetune table`, or what minimal_pairs.py prints.

    Raises:
        SystemExit: there is no such file.
    """
    name, _, file = words.rpartition("=")
    scores: defaultdict[str, dict[str, float]] = defaultdict(dict)
    try:
        rows = list(csv.DictReader(Path(file).read_text(encoding="utf-8").splitlines()))
    except OSError:
        raise SystemExit(f"--scores {words}: there is no such file") from None
    for row in rows:
        tasks, column = scores[row["run"]], row["column"]
        if row.get("model", "").endswith("not pre-trained") or row["score"] in ("", "diverged"):
            continue
        # The parts of a score follow it, under names that begin as its own.
        if not any(column.startswith(f"{task} ") for task in tasks):
            tasks[column] = float(row["score"])
    end = f", {name}" if name else ""
    return {
        run: {f"{task}{end}": score for task, score in tasks.items()}
        for run, tasks in scores.items()
    }
