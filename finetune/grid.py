"""The folder of a grid: what was asked for, and which of it is still to be run.

A grid may grow: more tasks, models, learning rates or seeds are added to what is there. Nothing
else of it may change, or its results could not be compared.
"""

import errno
import fcntl
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from data_prep.durable import save_text
from finetune.cell import Cell
from finetune.metrics import majority_scores
from finetune.results import GRID_FILE, MAJORITY_FILE
from finetune.settings import GROWING, Protocol
from finetune.sources import Source, TaskSource
from finetune.tasks import Example, TaskData
from pretrain.config import ConfigError, flat

LOCK_FILE = "grid.lock"
Item = TypeVar("Item")


class ModelRecord(BaseModel):
    """A model that was asked for."""

    model_config = ConfigDict(extra="forbid")

    model: str  # what tables call it
    source: str
    step: int | None
    pretrained: bool
    digest: str  # of the weights, or the shape

    @property
    def key(self) -> tuple[str, int | None, bool]:
        """Return what results know it by."""
        return self.model, self.step, self.pretrained


class GridRecord(BaseModel):
    """What grid.json holds: every model on every task, at every rate, with every seed."""

    model_config = ConfigDict(extra="forbid")

    protocol: dict[str, Any]  # without what may grow
    tasks: list[str]
    learning_rates: list[float]
    seeds: list[int]
    models: list[ModelRecord]
    data: dict[str, str]  # digest of the labelled examples by task
    test: dict[str, str] = {}  # digest of the test examples by task, where predictions were wanted


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
        data={
            name: _digest([found.train, *found.development.values()])
            for name, found in data.items()
        },
        test={
            name: _digest(found.test.values())
            for name, found in data.items()
            if predicts_test and found.test
        },
    )


def read_grid(folder: Path) -> GridRecord | None:
    """Return what a folder was asked for so far; None: there is no grid in it.

    Raises:
        ConfigError: grid.json is damaged.
    """
    file = folder / GRID_FILE
    if not file.is_file():
        return None
    try:
        return GridRecord.model_validate_json(file.read_bytes())
    except ValidationError:
        raise ConfigError(
            f"{file} is damaged; give the results another folder (--to FOLDER), or remove {folder}"
        ) from None


def grown(before: GridRecord, now: GridRecord, folder: Path) -> GridRecord:
    """Return what two starts in the same folder ask for together.

    Raises:
        ConfigError: the protocol, a model or the data of a task is another one; names it.
    """
    _refuse_other_protocol(before, now, folder)
    _refuse_other_examples(before, now, folder)
    models = {model.key: model for model in before.models}
    for model in now.models:
        known = models.setdefault(model.key, model)
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
    file = folder / MAJORITY_FILE
    scores = json.loads(file.read_text()) if file.is_file() else {}
    scores |= {name: majority_scores(found) for name, found in data.items()}
    save_text(file, json.dumps(scores, indent=1) + "\n")
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
    old, new = flat(before.protocol), flat(now.protocol)
    changed = sorted(name for name in old | new if old.get(name) != new.get(name))
    if changed:
        listed = ", ".join(f"{n} (was {old.get(n)}, is {new.get(n)})" for n in changed)
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


def _digest(splits: Iterable[Sequence[Example]]) -> str:
    digest = hashlib.sha256()
    for examples in splits:
        for example in examples:
            digest.update(repr((example.texts, example.label)).encode())
    return digest.hexdigest()[:16]
