"""The folder of a grid: what was asked for, and which of it is still to be run.

A grid may grow: more tasks, models, learning rates or seeds are added to what is there. Nothing
else of it may change, or its results could not be compared.
"""

import errno
import fcntl
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from data_prep.durable import save_text
from finetune.cell import Cell
from finetune.grid_record import GridRecord, ModelRecord, changed_settings, read_majority
from finetune.metrics import majority_scores
from finetune.results import GRID_FILE, MAJORITY_FILE
from finetune.settings import GROWING, Protocol
from finetune.sources import Source, TaskSource
from finetune.tasks import TaskData
from pretrain.config import ConfigError

LOCK_FILE = "grid.lock"
Item = TypeVar("Item")


def cells_of(
    sources: Sequence[Source], tasks: Sequence[TaskSource], protocol: Protocol
) -> list[Cell]:
    """Return all cells, in an order in which those that share rows and weights are neighbours."""
    return [
        Cell(source, task, rate, seed)
        for task in tasks
        for source in sources
        for rate in protocol.learning_rates
        for seed in range(protocol.seeds)
    ]


def record_of(
    sources: Sequence[Source],
    data: Mapping[str, TaskData],
    protocol: Protocol,
    *,
    predicts_test: bool,
) -> GridRecord:
    """Return what a grid of these is asked for."""
    return GridRecord(
        protocol=json.loads(protocol.model_dump_json(exclude=set(GROWING))),
        tasks=list(data),
        learning_rates=sorted(protocol.learning_rates),
        seeds=list(range(protocol.seeds)),
        models=[
            ModelRecord(
                model=source.name,
                source=source.place,
                step=source.step,
                pretrained=source.pretrained,
                digest=source.digest,
            )
            for source in sources
        ],
        data={name: found.labelled_digest for name, found in data.items()},
        test={
            name: found.test_digest for name, found in data.items() if predicts_test and found.test
        },
    )


def grown(before: GridRecord, now: GridRecord, folder: Path) -> GridRecord:
    """Return what two starts in the same folder ask for together.

    Raises:
        ConfigError: the protocol, a model or the data of a task is another one; names it.
    """
    _refuse_other_protocol(before, now, folder)
    _refuse_other_examples(before, now, folder)
    models = {model.folder_name: model for model in before.models}
    for model in now.models:
        known = models.setdefault(model.folder_name, model)
        if known.digest != model.digest:
            raise ConfigError(
                f"{folder} holds results of {known.source}, also called {model.model!r}, with "
                f"other weights than {model.source}: give the results another folder (--to FOLDER)"
            )
    return GridRecord(
        protocol=now.protocol,
        tasks=_union(before.tasks, now.tasks),
        learning_rates=sorted(_union(before.learning_rates, now.learning_rates)),
        seeds=sorted(_union(before.seeds, now.seeds)),
        models=list(models.values()),
        data={**before.data, **now.data},
        test={**before.test, **now.test},
    )


def save_grid(folder: Path, record: GridRecord, data: Mapping[str, TaskData]) -> None:
    """Write grid.json, and the scores without a model of the tasks that are new in it."""
    scores = read_majority(folder)
    scores |= {name: majority_scores(found) for name, found in data.items()}
    save_text(folder / MAJORITY_FILE, json.dumps(scores, indent=1) + "\n")
    save_text(folder / GRID_FILE, record.model_dump_json(indent=1) + "\n")


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keep other grids out of a folder, which is made; the system ends it with this process.

    Raises:
        ConfigError: another process is running a grid in it, it cannot be written, or the disk
            becomes full.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK_FILE).open("w")
    except OSError as error:
        raise ConfigError(
            f"cannot write into {folder}: {error.strerror}; give another --to FOLDER"
        ) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"another process is filling {folder}; wait for it, or give another --to FOLDER"
            ) from None
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise ConfigError(
                f"cannot write into {folder}: {error.strerror}; free some, and give the same "
                "command again with --retry-failed"
            ) from None


def _refuse_other_protocol(before: GridRecord, now: GridRecord, folder: Path) -> None:
    changed = changed_settings(before, now)
    if changed:
        listed = ", ".join(f"{name} (was {old}, is {new})" for name, (old, new) in changed.items())
        raise ConfigError(
            f"{folder} was begun with another protocol: {listed}; leave that as it was, or give "
            "the results another folder (--to FOLDER)"
        )


def _refuse_other_examples(before: GridRecord, now: GridRecord, folder: Path) -> None:
    for what, old, new in (
        ("results", before.data, now.data),
        ("predictions", before.test, now.test),
    ):
        for name, digest in new.items():
            if old.get(name, digest) != digest:
                raise ConfigError(
                    f"{folder} holds {what} on {name} from other examples than there are now: "
                    "bring the files back, give the results another folder (--to FOLDER), or a "
                    "task of your own another --name"
                )


def _union(first: Sequence[Item], second: Sequence[Item]) -> list[Item]:
    return list(dict.fromkeys([*first, *second]))
