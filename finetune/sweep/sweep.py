"""The folder of a grid: what was asked for, and which of it is still to be run.

A grid may grow: more tasks, models, learning rates or seeds are added to what is there. Nothing
else of it may change, or its results could not be compared.
"""

import errno
import fcntl
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from tabulate import tabulate

from data_prep.files.atomic import save_text
from data_prep.files.workers import cpu_count
from finetune.protocol import GROWING, Protocol
from finetune.report.page import print_table
from finetune.results.result import GRID_FILE, MAJORITY_FILE, read_result
from finetune.results.sweep_record import GridRecord, ModelRecord, changed_settings, read_majority
from finetune.sweep.progress import GridProgress
from finetune.sweep.sources import Source, TaskSource
from finetune.sweep.trial import Cell, is_over
from finetune.sweep.workers import Work, run_cells
from finetune.tasks.glue import TaskData
from finetune.training.metrics import majority_scores
from pretrain.config.errors import ConfigError

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


# What a row's share of the optimizer step costs, in letters of text: measured with 4 layers of
# width 256 on a CPU and 32 rows of 9 to 75 tokens (CoLA's and RTE's).
OPTIMIZER_LETTERS = 50


@dataclass(frozen=True)
class Grid:
    """The cells that one command asks for."""

    folder: Path
    protocol: Protocol
    cells: Sequence[Cell]
    data: Mapping[str, TaskData]  # by task
    predicts_test: bool
    retries_failed: bool

    def missing(self) -> list[Cell]:
        """Return the cells that are to be run."""
        return [cell for cell in self.cells if not self._is_over(cell)]

    def rows(self, cell: Cell) -> int:
        """Return how many rows a cell trains on, all epochs together."""
        task = cell.task.task.name
        return len(self.data[task].train) * self.protocol.epochs_on(task)

    def row_cost(self, task: str) -> float:
        """Return about how long a row takes to be trained on, beside the rows of other tasks."""
        train = self.data[task].train
        letters = sum(len(text) for example in train for text in example.texts)
        return OPTIMIZER_LETTERS + letters / len(train)

    def steps(self, cell: Cell) -> int:
        """Return how many optimizer steps a cell takes."""
        task = cell.task.task.name
        return -(-len(self.data[task].train) // self.protocol.batch) * self.protocol.epochs_on(task)

    def _is_over(self, cell: Cell) -> bool:
        splits = list(self.data[cell.task.task.name].test) if self.predicts_test else []
        return is_over(
            self.folder / cell.folder, test_splits=splits, retries_failed=self.retries_failed
        )


def describe_grid(grid: Grid) -> str:
    """Return what would be run, for a dry run."""
    missing = grid.missing()
    rows = [_described(grid, task, missing) for task in grid.data]
    names = ["task", "rows", "epochs", "steps a run", "runs", "over", "to run"]
    protocol, models = grid.protocol, dict.fromkeys(cell.source.describe() for cell in grid.cells)
    rates = ", ".join(f"{rate:g}" for rate in protocol.learning_rates)
    return "\n".join(
        [
            tabulate(rows, names, intfmt=",", colalign=("left", *["right"] * 6)),
            "",
            f"models: {', '.join(models)}",
            f"protocol {protocol.name}: learning rates {rates}, {protocol.seeds} seeds, batch "
            f"{protocol.batch}",
            f"to run: {len(missing):,} runs, {sum(map(grid.steps, missing)):,} steps, "
            f"{sum(map(grid.rows, missing)):,} rows",
            f"results: {grid.folder}",
        ]
    )


def _described(grid: Grid, task: str, missing: Sequence[Cell]) -> list[str | int]:
    cells = [cell for cell in grid.cells if cell.task.task.name == task]
    to_run = sum(cell.task.task.name == task for cell in missing)
    rows, epochs = len(grid.data[task].train), grid.protocol.epochs_on(task)
    return [task, rows, epochs, grid.steps(cells[0]), len(cells), len(cells) - to_run, to_run]


def run_grid(grid: Grid, num_workers: int | None) -> None:
    """Run the missing cells, and show how far they are.

    Args:
        grid: of the command.
        num_workers: runs at once; None: one per GPU, or per core where there is no GPU.

    Raises:
        KeyboardInterrupt: the user has stopped it, and knows how to go on.
    """
    missing = grid.missing()
    finished = len(grid.cells) - len(missing)
    before = f", {finished:,} are over already" if finished else ""
    print(f"{len(missing):,} runs to {grid.folder}{before}", file=sys.stderr)
    if not missing:
        return
    # By all cells, not the missing ones: a run that is taken up later has as many threads, and so
    # rounds alike.
    devices, threads = divided(num_workers, len(grid.cells))
    digests = {name: (data.labelled_digest, data.test_digest) for name, data in grid.data.items()}
    work = Work(grid.folder, grid.protocol, grid.predicts_test, threads, digests)
    costs = {task: grid.row_cost(task) for task in {cell.task.task.name for cell in missing}}
    progress = GridProgress(
        {cell: grid.rows(cell) for cell in missing},
        {cell: costs[cell.task.task.name] for cell in missing},
    )
    try:
        for cell, message in run_cells(missing, work, devices):
            progress.hear(cell, message)
    except KeyboardInterrupt:
        progress.close()
        left = len(grid.missing())
        print(
            f"Stopped; {left:,} of {len(grid.cells):,} runs are left. The same command goes on.",
            file=sys.stderr,
        )
        raise
    progress.close()


def divided(num_workers: int | None, num_cells: int) -> tuple[list[str], int]:
    """Return the device of each worker, and the threads that each has."""
    cores, num_gpus = cpu_count(), torch.cuda.device_count()
    count = min(num_workers or num_gpus or cores, num_cells)
    devices = [f"cuda:{n % num_gpus}" if num_gpus else "cpu" for n in range(count)]
    return devices, max(1, cores // count)


def report(grid: Grid) -> None:
    """Print the table of all that is in the folder, with what went wrong, and where it is.

    Raises:
        SystemExit: with status 1, a run of this command failed.
    """
    print_table([grid.folder], step="all")
    results = [read_result(grid.folder / cell.folder) for cell in grid.cells]
    print(f"results: {grid.folder} | curves: tensorboard --logdir {grid.folder}")
    if any(result is not None and result.status == "failed" for result in results):
        print("Failed runs are run again by the same command with --retry-failed", file=sys.stderr)
        raise SystemExit(1)
