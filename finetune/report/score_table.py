"""The scores of all models on all tasks, as a table to be printed or drawn."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import NamedTuple

from finetune.report.scores import DIVERGED, Cell, Counting, best_cell, cell_at, score
from finetune.results.records import Records, Row, Run
from finetune.tasks.glue import GLUE
from pretrain.config.errors import ConfigError

UNTRAINED = ", not pre-trained"
MAJORITY = Row("majority class", "", None, False)
TITLES = {"dev": "{}", "dev_matched": "{}-m", "dev_mismatched": "{}-mm"}


class Column(NamedTuple):
    """One development set of one task."""

    task: str
    split: str

    @property
    def title(self) -> str:
        """Return what papers call it."""
        return TITLES.get(self.split, "{} " + self.split).format(self.task)


@dataclass(frozen=True)
class ScoreTable:
    """Cells by row and task, and which of the rows are shown."""

    protocol: str
    counting: Counting
    columns: list[Column]
    rows: list[Row]  # those of the table: majority class, not pre-trained, then the models
    every_row: list[Row]  # with the steps that the table leaves out
    cells: dict[tuple[Row, str], list[Cell]]  # by learning rate, ascending

    def best(self, row: Row, task: str) -> Cell | None:
        """Return the cell at the best learning rate; None: there is no run."""
        cells = self.cells.get((row, task))
        return best_cell(cells) if cells else None

    def median(self, row: Row, column: Column) -> float | None:
        """Return the median score, as a fraction of 1; see `Cell.median`."""
        cell = self.best(row, column.task)
        return None if cell is None else cell.median(column.split)

    @property
    def averaged(self) -> list[Column]:
        """Return the columns that the average is over; TUPE's Table 2 leaves WNLI out."""
        left_out = {"WNLI"} if self.counting == "tupe" else set()
        return [column for column in self.columns if column.task in GLUE.keys() - left_out]

    @property
    def has_average(self) -> bool:
        """Return whether there is more than one task to take a mean over."""
        return len({column.task for column in self.averaged}) > 1

    def lacking(self, row: Row) -> list[str]:
        """Return the titles of columns that the average needs and the row has no score in."""
        medians = {column.title: self.median(row, column) for column in self.averaged}
        return [title for title, median in medians.items() if median in (None, DIVERGED)]

    def average(self, row: Row) -> float | None:
        """Return the mean over the tasks, as a fraction of 1; None: the row lacks some.

        GLUE counts MNLI's two sets as one task (Wang et al. 2019); TUPE's Table 2 counts each.
        """
        if self.lacking(row):
            return None
        groups: dict[str, list[float]] = {}
        for column in self.averaged:
            median = self.median(row, column)
            assert median is not None
            group = column.task if self.counting == "glue" else column.title
            groups.setdefault(group, []).append(median)
        return statistics.fmean(statistics.fmean(group) for group in groups.values())

    def label(self, row: Row) -> str:
        """Return what the row is called; models of one name are told apart by their folders."""
        origins = {other.origin for other in self.every_row if other.model == row.model}
        place = f" ({_remainder(row.origin, origins)})" if len(origins) > 1 else ""
        return row.model + place + ("" if row.pretrained or row == MAJORITY else UNTRAINED)


def score_table(records: Records, counting: Counting, step: str = "newest") -> ScoreTable:
    """Make the table of the records.

    Args:
        records: at least one run.
        counting: how several metrics and development sets of a task become one number.
        step: of pre-training: the "newest" of each model, "all", or a number.

    Raises:
        ConfigError: no model has that step.
    """
    every_row = _ordered({run.row for run in records.runs}, records.runs)
    tasks = _tasks(records)
    cells = {
        (row, task): found
        for row in every_row
        for task in tasks
        if (found := _cells(records, row, task, counting))
    }
    shown = _chosen(every_row, step)
    if any(task in records.majority for task in tasks):
        shown.insert(0, MAJORITY)
        cells |= _majority_cells(records, counting)
    return ScoreTable(
        protocol=records.runs[0].result.protocol,
        counting=counting,
        columns=[Column(task, split) for task in tasks for split in _splits(records, task)],
        rows=shown,
        every_row=every_row,
        cells=cells,
    )


def num_seeds_asked(records: Records, row: Row, task: str) -> int:
    """Return how many seeds were asked for, or are there where nothing tells."""
    seeds = {run.result.seed for run in records.runs if (run.row, run.result.task) == (row, task)}
    for asked in records.asked:
        if task in asked.tasks and row in asked.rows:
            seeds.update(asked.seeds)
    return len(seeds)


def _ordered(rows: Iterable[Row], runs: Sequence[Run]) -> list[Row]:
    """Return models without pre-training first; then as they were named, early steps first."""
    places = {(run.row.model, run.row.origin): -n for n, run in enumerate(reversed(runs))}
    return sorted(rows, key=lambda row: (row.pretrained, places[row[:2]], row.step or 0))


def _tasks(records: Records) -> list[str]:
    """Return the tasks with results in GLUE's order, then the user's own."""
    found = dict.fromkeys(run.result.task for run in records.runs)
    return [task for task in GLUE if task in found] + [task for task in found if task not in GLUE]


def _splits(records: Records, task: str) -> list[str]:
    """Return the development sets of a task that something was scored on."""
    scored = [run.result.scores for run in records.runs if run.result.task == task]
    found = dict.fromkeys(
        split for scores in [*scored, records.majority.get(task, {})] for split in scores
    )
    expected = GLUE[task].development if task in GLUE else ("dev",)
    return sorted(found) or list(expected)


def _cells(records: Records, row: Row, task: str, counting: Counting) -> list[Cell]:
    runs = [run for run in records.runs if (run.row, run.result.task) == (row, task)]
    num_asked = num_seeds_asked(records, row, task)
    rates = sorted({run.result.learning_rate for run in runs})
    return [
        cell_at(
            rate, [run for run in runs if run.result.learning_rate == rate], num_asked, counting
        )
        for rate in rates
    ]


def _majority_cells(records: Records, counting: Counting) -> dict[tuple[Row, str], list[Cell]]:
    return {
        (MAJORITY, task): [
            Cell(None, [{s: score(task, m, counting) for s, m in scores.items()}], 0, 1)
        ]
        for task, scores in records.majority.items()
    }


def _chosen(rows: Sequence[Row], step: str) -> list[Row]:
    """Return the rows of the steps asked for, with all that were not pre-trained."""
    if step == "all":
        return list(rows)
    if step == "newest":
        newest = {row[:2]: row for row in rows if row.pretrained}  # the last one, rows ascend
        return [row for row in rows if not row.pretrained or newest[row[:2]] == row]
    steps = sorted({row.step for row in rows if row.step is not None})
    if not step.isdecimal() or int(step) not in steps:
        known = ", ".join(map(str, steps)) or "none, no result names its step"
        raise ConfigError(f"--step {step}: give newest, all or a step that there is: {known}")
    return [row for row in rows if not row.pretrained or row.step == int(step)]


def _remainder(origin: str, origins: Iterable[str]) -> str:
    """Return a path without the folders that all of them begin with."""
    paths = [PurePath(other).parts[:-1] for other in origins]
    shared = 0
    for parts in zip(*paths, strict=False):
        if len(set(parts)) > 1:
            break
        shared += 1
    return str(PurePath(*PurePath(origin).parts[shared:]))
