"""The record of what was requested of a sweep, in its folder.

A sweep may grow: tasks, models, learning rates and seeds are added to the existing ones. The main
metric of a task may change. Nothing else of it may, or its results could not be compared.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from data_prep.files.atomic import save_text
from finetune.protocol import GROWING, Protocol
from finetune.results.model_folder import is_model
from finetune.results.result import MAJORITY_FILE, SWEEP_FILE, run_of
from finetune.results.sweep_results import (
    Keep,
    ModelRef,
    SweepRecord,
    differences,
    read_majority,
    read_sweep_record,
)
from finetune.tasks.task import TaskData
from pretrain.config.errors import ConfigError


def record_of(
    models: Iterable[ModelRef],
    data: Mapping[str, TaskData],
    protocol: Protocol,
    *,
    predicts_test: bool,
    keep: Keep | None = None,
) -> SweepRecord:
    """Return the record of a sweep of these models and tasks."""
    return SweepRecord(
        protocol=json.loads(protocol.model_dump_json(exclude=set(GROWING))),
        tasks=list(data),
        learning_rates=sorted(protocol.learning_rates),
        seeds=list(range(protocol.seeds)),
        models=list(models),
        data={name: found.labelled_digest for name, found in data.items()},
        metrics={name: found.task.metrics[0] for name, found in data.items()},
        test={
            split: digest
            for found in data.values()
            if predicts_test
            for split, digest in found.test_digests.items()
        },
        keep=keep,
    )


def merged(now: SweepRecord, folder: Path) -> SweepRecord:
    """Return the record of a request and of the earlier ones for its folder.

    Raises:
        ConfigError: the protocol, a model or the data of a task differ; names the difference.
    """
    before = read_sweep_record(folder)
    if before is None:
        return now
    changed = differences(before, now, in_one_folder=True)
    if changed:
        raise ConfigError(
            f"{folder} and this command differ in {', '.join(changed)}: choose another folder "
            "(--to FOLDER), give another task another --name, or restore what was given first"
        )
    known = {model.folder_name for model in before.models}
    return SweepRecord(
        protocol=now.protocol,
        tasks=list(dict.fromkeys([*before.tasks, *now.tasks])),
        learning_rates=sorted({*before.learning_rates, *now.learning_rates}),
        seeds=sorted({*before.seeds, *now.seeds}),
        models=[*before.models, *(one for one in now.models if one.folder_name not in known)],
        data={**before.data, **now.data},
        metrics={**before.metrics, **now.metrics},
        test={**before.test, **now.test},
        keep=now.keep or before.keep,
    )


def save_sweep_record(folder: Path, record: SweepRecord, data: Mapping[str, TaskData]) -> None:
    """Write grid.json, and the majority-class scores of the tasks, with those that are there."""
    from finetune.training.metrics import majority_scores  # scikit-learn takes seconds

    together = merged(record, folder)
    scores = read_majority(folder)
    scores |= {name: majority_scores(found) for name, found in data.items()}
    save_text(folder / MAJORITY_FILE, json.dumps(scores, indent=1) + "\n")
    save_text(folder / SWEEP_FILE, together.model_dump_json(indent=1) + "\n")


def default_folder(models: Sequence[str], protocol: Protocol) -> Path:
    """Return RUN/finetune/PROTOCOL, for a run or one of its checkpoints.

    Raises:
        ConfigError: there are several models, or one that is not a folder or is fine-tuned.
    """
    place = Path(models[0])
    if len(models) > 1 or not place.is_dir() or is_model(place):
        missing = "" if place.exists() else f"there is no {place} here; for a model of the Hub: "
        raise ConfigError(
            f"{missing}say where the results go, such as --to runs/finetune: only those of one run "
            "have a place of their own"
        )
    return Path(run_of(place.absolute()), "finetune", protocol.name)
