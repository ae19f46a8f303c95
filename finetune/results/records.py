"""All runs of some folders, what else was asked for, and the scores without a model."""

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

from finetune.results.result import GRID_FILE, MAJORITY_FILE, Result, Scores, read_results
from finetune.results.sweep_record import GridRecord, changed_settings, read_grid, read_majority
from pretrain.config.errors import ConfigError


class Row(NamedTuple):
    """A model at one step of its pre-training: one row of the table."""

    model: str
    origin: str  # the run or folder that the weights came from
    step: int | None
    pretrained: bool = True


class Run(NamedTuple):
    """One fine-tuning run that is over."""

    folder: Path
    row: Row
    result: Result


class Asked(NamedTuple):
    """What a grid was asked for: every model on every task, at every rate, with every seed."""

    rows: list[Row]
    tasks: list[str]
    learning_rates: list[float]
    seeds: list[int]


class Records(NamedTuple):
    """What some folders say together."""

    runs: list[Run]
    asked: list[Asked]
    majority: dict[str, Scores]  # by task


def read_records(folders: Sequence[Path]) -> Records:
    """Read run folders or grid folders, and all that is below them.

    Raises:
        ConfigError: a folder holds no result, a file is damaged, two files tell different
            things of one run or task, or the runs follow different protocols.
    """
    grids = _read_grids(folders)
    asked = {folder: _asked(grid) for folder, grid in grids.items()}
    runs: dict[tuple[Row, str, float, int], Run] = {}
    for folder in dict.fromkeys(folder.resolve() for folder in folders):
        for place, result in read_results(folder).items():
            _add(runs, Run(place, _row_of(result, asked.get(place.parents[3])), result))
    _refuse_other_protocols(list(runs.values()))
    _refuse_other_settings(grids)
    return Records(list(runs.values()), list(asked.values()), _read_majority(folders))


def _read_grids(folders: Sequence[Path]) -> dict[Path, GridRecord]:
    found = {file.parent: read_grid(file.parent) for file in _files(folders, GRID_FILE)}
    return {folder: grid for folder, grid in found.items() if grid is not None}


def _asked(grid: GridRecord) -> Asked:
    rows = [
        Row(model.model, _origin(model.source), model.step, model.pretrained)
        for model in grid.models
    ]
    return Asked(rows, grid.tasks, grid.learning_rates, grid.seeds)


def _row_of(result: Result, grid: Asked | None) -> Row:
    # New weights are the same ones, whichever checkpoint they are compared with.
    step = result.step if result.pretrained else None
    row = Row(result.model, _origin(result.source), step, result.pretrained)
    # A grid holds one model of a name; its run may have been moved between two of the results.
    known = grid.rows if grid else []
    return next((other for other in known if other._replace(origin=row.origin) == row), row)


def _origin(source: str) -> str:
    """Return the run that a checkpoint RUN/checkpoints/NAME belongs to, or the place itself."""
    place = PurePath(source)
    return str(place.parent.parent) if place.parent.name == "checkpoints" else source


def _add(runs: dict[tuple[Row, str, float, int], Run], run: Run) -> None:
    """Add a run, once, if several folders hold it; a failed one gives way to one that ended."""
    key = (run.row, run.result.task, run.result.learning_rate, run.result.seed)
    known = runs.get(key)
    if known is None or known.result.status == "failed":
        runs[key] = run
    elif run.result.status != "failed" and run.result.scores != known.result.scores:
        raise ConfigError(
            f"{known.folder} and {run.folder} are the same run of {run.row.model} on "
            f"{run.result.task}, with different scores; leave one of the folders out"
        )


def _refuse_other_protocols(runs: Sequence[Run]) -> None:
    first = runs[0]
    for run in runs:
        if run.result.protocol != first.result.protocol:
            raise ConfigError(
                f"{first.folder} follows protocol {first.result.protocol}, {run.folder} protocol "
                f"{run.result.protocol}: their scores cannot be compared; name the folders of one "
                f"protocol, such as RUN/finetune/{first.result.protocol}"
            )


def _refuse_other_settings(grids: Mapping[Path, GridRecord]) -> None:
    """Refuse protocols that are called alike, as a file that was edited is, and differ."""
    for folder, grid in grids.items():
        first_folder, first = next(iter(grids.items()))
        changed = changed_settings(first, grid)
        if changed:
            listed = ", ".join(f"{name} {old} and {new}" for name, (old, new) in changed.items())
            raise ConfigError(
                f"{first_folder} and {folder} follow different protocols ({listed}): their scores "
                "cannot be compared; leave one of the folders out"
            )


def _files(folders: Sequence[Path], name: str) -> list[Path]:
    """Return all files of this name, those that several folders lead to once."""
    found = [file for folder in folders for file in sorted(folder.resolve().rglob(name))]
    return list(dict.fromkeys(found))


def _read_majority(folders: Sequence[Path]) -> dict[str, Scores]:
    """Return the scores of all folders; where two differ, so do the development sets."""
    scores: dict[str, Scores] = {}
    origins: dict[str, Path] = {}
    for file in _files(folders, MAJORITY_FILE):
        for task, found in read_majority(file.parent).items():
            if scores.setdefault(task, found) != found:
                raise ConfigError(
                    f"{origins[task]} and {file} give the majority class different scores on "
                    f"{task}: their data differ, and so their scores cannot be compared"
                )
            origins.setdefault(task, file)
    return scores
