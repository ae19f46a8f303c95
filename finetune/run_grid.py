"""Run what is missing of a grid, and tell the user about it."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tabulate import tabulate

from data_prep.parallel import cpu_count
from finetune.cell import Cell, is_over
from finetune.grid_progress import GridProgress
from finetune.results import read_result
from finetune.settings import Protocol
from finetune.table_command import print_table
from finetune.tasks import TaskData
from finetune.workers import Work, run_cells

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
