"""Everything that the folders of sweeps hold: results, requests and majority-class scores."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

from data_prep.files.program import shell_command
from finetune.results.result import (
    MAJORITY_FILE,
    RESULTS_OF_CELL,
    SWEEP_FILE,
    Scores,
    TrialResult,
    results_of,
)
from finetune.results.sweep_record import (
    ModelRef,
    SweepRecord,
    changed_settings,
    other_examples,
    read_majority,
    read_sweep_record,
)
from pretrain.config.errors import ConfigError


class TableRow(NamedTuple):
    """A model at one step of its pre-training: one row of the table."""

    model: str
    origin: str  # the run or folder that the weights came from
    step: int | None
    pretrained: bool = True


class EndedTrial(NamedTuple):
    """One trial that is over."""

    folder: Path
    row: TableRow
    result: TrialResult


class Requested(NamedTuple):
    """A request: every model on every task, at every rate, with every seed."""

    rows: list[TableRow]
    tasks: list[str]
    learning_rates: list[float]
    seeds: list[int]


class SweepResults(NamedTuple):
    """The content of several folders together; of all scores the main metric is the first."""

    trials: list[EndedTrial]
    requested: list[Requested]
    majority: dict[str, Scores]  # by task


def read_sweep_results(folders: Sequence[Path]) -> SweepResults:
    """Read pre-training runs or folders of sweeps, with everything below them.

    Raises:
        ConfigError: a folder holds no result, a file is damaged, two files contradict each other
            on a trial, a task or a model, or the trials follow different protocols.
    """
    found = {file.parent: read_sweep_record(file.parent) for file in _files(folders, SWEEP_FILE)}
    sweeps = {folder: record for folder, record in found.items() if record is not None}
    _refuse_differences(sweeps)
    requested = {
        folder: Requested(
            [_row_of_record(model) for model in record.models],
            *(record.tasks, record.learning_rates, record.seeds),
        )
        for folder, record in sweeps.items()
    }
    metrics = {task: name for record in sweeps.values() for task, name in record.metrics.items()}
    trials: dict[tuple[TableRow, str, float, int], EndedTrial] = {}
    for folder in dict.fromkeys(folder.resolve() for folder in folders):
        results = results_of(folder.rglob(RESULTS_OF_CELL))
        if not results:
            raise ConfigError(
                f"{folder} holds no result of fine-tuning; fine-tune first with: "
                f"{shell_command('finetune', 'run', 'RUN')}"
            )
        for place, result in results.items():
            row = _row_of(result, requested.get(place.parents[3]))
            _add(trials, _ended(place, result, row, metrics))
    majority: dict[str, Scores] = {}  # of each task the first: other examples are refused
    for file in _files(folders, MAJORITY_FILE):
        for task, stored in read_majority(file.parent).items():
            majority.setdefault(task, with_main_first(stored, metrics.get(task), file))
    return SweepResults(list(trials.values()), list(requested.values()), majority)


def read_cell(sweep: Path, cell: Path, metrics: Mapping[str, str]) -> list[EndedTrial]:
    """Return the ended trials of one model on one task, and read no other.

    Args:
        sweep: folder of the sweep.
        cell: folder of the model on the task, relative to it.
        metrics: the main one by task.

    Raises:
        ConfigError: a result is damaged, or lacks the main metric.
    """
    found = results_of((sweep / cell).glob(RESULTS_OF_CELL))
    return [_ended(place, r, _row_of(r, None), metrics) for place, r in found.items()]


def _ended(
    place: Path, result: TrialResult, row: TableRow, metrics: Mapping[str, str]
) -> EndedTrial:
    scores = with_main_first(result.scores, metrics.get(result.task), place)
    return EndedTrial(place, row, result.model_copy(update={"scores": scores}))


def _row_of_record(model: ModelRef) -> TableRow:
    return TableRow(model.model, _origin(model.source), model.step, model.pretrained)


def _refuse_differences(sweeps: Mapping[Path, SweepRecord]) -> None:
    """Refuse sweeps whose scores cannot be compared, or that hold two models in one row."""
    for (first, one), (folder, other) in itertools.combinations(sweeps.items(), 2):
        different = [
            *changed_settings(one, other),
            *other_examples(one.data, other.data),
            *(
                f"--metric of {task} ({metric} and {other.metrics[task]})"
                for task, metric in one.metrics.items()
                if other.metrics.get(task, metric) != metric
            ),
            *(
                f"weights of {model.model}"
                for model, same in itertools.product(one.models, other.models)
                # Without pre-training the digest is of the settings; a version may add one.
                if model.pretrained and _row_of_record(model) == _row_of_record(same)
                if model.digest != same.digest  # as of a run that was trained anew in its folder
            ),
        ]
        if different:
            raise ConfigError(
                f"the scores of {first} and {folder} cannot be compared: they differ in "
                f"{', '.join(different)}; leave one of the folders out"
            )


def with_main_first(scores: Scores, main: str | None, place: Path) -> Scores:
    """Return scores with the main metric in front; they are as they were if there is none.

    Raises:
        ConfigError: a development set lacks it.
    """
    if main is None:
        return scores
    for metrics in scores.values():
        if main not in metrics:
            raise ConfigError(
                f"{place} has no {main}: choose another folder, or --metric of {', '.join(metrics)}"
            )
    return {split: {main: found[main], **found} for split, found in scores.items()}


def _row_of(result: TrialResult, requested: Requested | None) -> TableRow:
    # New weights are the same whichever checkpoint they are compared with.
    step = result.step if result.pretrained else None
    row = TableRow(result.model, _origin(result.source), step, result.pretrained)
    # A sweep holds one model of a name; its run may have been moved between two of the results.
    known = requested.rows if requested else []
    return next((other for other in known if other._replace(origin=row.origin) == row), row)


def run_of(place: PurePath) -> PurePath:
    """Return the run that a checkpoint RUN/checkpoints/NAME belongs to, or the place itself."""
    return place.parent.parent if place.parent.name == "checkpoints" else place


def _origin(source: str) -> str:
    return str(run_of(PurePath(source)))


def _add(trials: dict[tuple[TableRow, str, float, int], EndedTrial], trial: EndedTrial) -> None:
    """Add a trial once if several folders hold it; a failed one is replaced by one that ended."""
    result = trial.result
    first = next(iter(trials.values()), trial)
    if result.protocol != first.result.protocol:
        raise ConfigError(
            f"{first.folder} follows protocol {first.result.protocol}, {trial.folder} protocol "
            f"{result.protocol}: their scores cannot be compared; name the folders of one "
            f"protocol, such as RUN/finetune/{result.protocol}"
        )
    key = (trial.row, result.task, result.learning_rate, result.seed)
    known = trials.get(key)
    if known is None or known.result.status == "failed":
        trials[key] = trial
    elif result.status != "failed" and result.scores != known.result.scores:
        raise ConfigError(
            f"{known.folder} and {trial.folder} are the same trial of {trial.row.model} on "
            f"{result.task}, with different scores; leave one of the folders out"
        )


def _files(folders: Sequence[Path], name: str) -> list[Path]:
    """Return all files of this name, each one once."""
    found = [file for folder in folders for file in sorted(folder.resolve().rglob(name))]
    return list(dict.fromkeys(found))
