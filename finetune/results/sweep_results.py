"""What the folders of sweeps hold: requests (grid.json), results, and majority-class scores."""

import itertools
import operator
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from data_prep.files.program import shell_command
from finetune.results.result import (
    MAJORITY_FILE,
    RESULTS_OF_CELL,
    SWEEP_FILE,
    Scores,
    TrialResult,
    read_json,
    read_result,
)
from pretrain.config.errors import ConfigError
from pretrain.config.settings import flat

WITHOUT_PRETRAINING = "without pre-training"
# Settings that protocols have had since then, with what the sweeps before them did.
ADDED_SETTINGS: dict[str, Any] = {"layer_decay": 1.0, "both_orders": []}
Keep = Literal["best", "all", "none"]
DEFAULT_KEEP: Keep = "best"
REPEAT = "remove it, and repeat the command of this sweep, which writes it again"


class TableRow(NamedTuple):
    """A model at one step of its pre-training: one row of the table."""

    model: str
    origin: str  # the run or folder that the weights came from
    step: int | None
    pretrained: bool = True


class ModelRef(BaseModel):
    """A model of a sweep: one checkpoint, export or external model."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    model: str  # its name in tables
    source: str  # its place; that of a run is one of its checkpoints
    step: int | None = Field(ge=0, lt=1 << 63)  # of pre-training
    pretrained: bool  # False: only its shape and its tokenizer are used
    digest: str  # of the weights; without pre-training, of shape and tokenizer

    @property
    def folder_name(self) -> str:
        """Return the name of its folder in a sweep; it contains no path separators."""
        extra = "" if self.step is None else f" step_{self.step:08d}"
        if not self.pretrained:
            extra = f" {WITHOUT_PRETRAINING}"
        return re.sub(r"^\.+|[^\w.-]+", "-", self.model + extra)

    @property
    def row(self) -> TableRow:
        """Return its row of a table."""
        return TableRow(self.model, str(run_of(self.source)), self.step, self.pretrained)

    def describe(self) -> str:
        """Return its name in messages."""
        if not self.pretrained:
            return f"{self.model} {WITHOUT_PRETRAINING}"
        return self.model if self.step is None else f"{self.model} step {self.step:,}"


class SweepRecord(BaseModel):
    """The content of grid.json: every model on every task, at every rate, with every seed."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    protocol: dict[str, Any]  # without the settings that may grow
    tasks: list[str]
    learning_rates: list[float]
    seeds: list[int]
    models: list[ModelRef]
    data: dict[str, str]  # digest of the labelled examples by task
    metrics: dict[str, str] = {}  # the main one by task; none: the first of its results
    # Digest of each test split by `split_title`, if predictions were requested; older folders hold
    # one by task, which is the same where there is one split.
    test: dict[str, str] = {}
    keep: Keep | None = None  # whose models stay; None: was never said


def run_of(place: str | PurePath) -> PurePath:
    """Return the run that a checkpoint RUN/checkpoints/NAME belongs to, or the place itself."""
    place = PurePath(place)
    return place.parent.parent if place.parent.name == "checkpoints" else place


def differences(old: SweepRecord, new: SweepRecord, *, in_one_folder: bool) -> list[str]:
    """Return in what two sweeps differ, so that their scores cannot be compared.

    Args:
        old: one of them.
        new: the other.
        in_one_folder: whether models of one name are one, wherever they came from.
    """
    before, now = (flat({**ADDED_SETTINGS, **record.protocol}) for record in (old, new))
    examples = [(old.data, new.data), *([(old.test, new.test)] if in_one_folder else [])]
    return [
        *(
            f"{name} ({before.get(name)} and {now.get(name)})"
            for name in sorted(before.keys() | now.keys())
            if before.get(name) != now.get(name)
        ),
        *(
            f"examples of {task}"
            for ours, theirs in examples
            for task in ours
            # A digest of an old version has the first part alone.
            if task in theirs
            and any(map(operator.ne, ours[task].split("-"), theirs[task].split("-")))
        ),
        *(
            f"weights of {model.describe()}"
            for model, same in itertools.product(old.models, new.models)
            # Without pre-training the digest is of the settings; a version may add one.
            if model.pretrained and model.digest != same.digest
            if (model.folder_name == same.folder_name if in_one_folder else model.row == same.row)
        ),
    ]


def read_sweep_record(folder: Path) -> SweepRecord | None:
    """Return what was requested of the sweep in a folder; None: there is no sweep.

    Raises:
        ConfigError: grid.json is damaged.
    """
    file = folder / SWEEP_FILE
    return read_json(file, TypeAdapter(SweepRecord), REPEAT) if file.is_file() else None


def read_majority(folder: Path) -> dict[str, Scores]:
    """Return the majority-class scores by task; empty: none are recorded.

    Raises:
        ConfigError: majority.json is damaged.
    """
    file = folder / MAJORITY_FILE
    kind = TypeAdapter(dict[str, Annotated[Scores, Field(min_length=1)]])
    return read_json(file, kind, REPEAT) if file.is_file() else {}


class EndedTrial(NamedTuple):
    """One trial that is over."""

    folder: Path
    row: TableRow
    result: TrialResult


class SweepResults(NamedTuple):
    """The content of several folders together; of all scores the main metric is the first."""

    trials: list[EndedTrial]
    requested: list[SweepRecord]
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
    metrics = {task: name for record in sweeps.values() for task, name in record.metrics.items()}
    trials: dict[tuple[TableRow, str, float, int], EndedTrial] = {}
    for folder in dict.fromkeys(folders):
        files = _files([folder], RESULTS_OF_CELL)
        if not files:
            raise ConfigError(
                f"{folder} holds no result of fine-tuning; fine-tune first with: "
                f"{shell_command('finetune', 'run', 'RUN')}"
            )
        for place in (file.parent for file in files):
            result = read_result(place)
            if result is not None:
                _add(trials, _ended(place, result, sweeps.get(place.parents[3]), metrics))
    majority: dict[str, Scores] = {}  # of each task the first: other examples are refused
    for file in _files(folders, MAJORITY_FILE):
        for task, stored in read_majority(file.parent).items():
            majority.setdefault(task, with_main_first(stored, metrics.get(task), file))
    return SweepResults(list(trials.values()), list(sweeps.values()), majority)


def read_group(group: Path, record: SweepRecord | None) -> list[EndedTrial]:
    """Return the trials of one model on one task that are over.

    Args:
        group: the folder of the model on the task.
        record: of the sweep.

    Raises:
        ConfigError: one of the results is damaged.
    """
    places = [file.parent for file in sorted(group.glob(RESULTS_OF_CELL))]
    return [
        _ended(place, result, record, record.metrics if record else {})
        for place in places
        if (result := read_result(place)) is not None
    ]


def _ended(
    place: Path, result: TrialResult, record: SweepRecord | None, metrics: Mapping[str, str]
) -> EndedTrial:
    # A sweep holds one model of a name; its run may have been moved between two of the results.
    rows = {model.folder_name: model.row for model in record.models} if record else {}
    # New weights are the same whichever checkpoint they are compared with.
    step = result.step if result.pretrained else None
    own = TableRow(result.model, str(run_of(result.source)), step, result.pretrained)
    scores = with_main_first(result.scores, metrics.get(result.task), place)
    row = rows.get(place.parents[1].name, own)
    return EndedTrial(place, row, result.model_copy(update={"scores": scores}))


def _refuse_differences(sweeps: Mapping[Path, SweepRecord]) -> None:
    """Refuse sweeps whose scores cannot be compared, or that hold two models in one row."""
    for (first, one), (folder, other) in itertools.combinations(sweeps.items(), 2):
        different = [
            *differences(one, other, in_one_folder=False),
            *(
                f"--metric of {task} ({metric} and {other.metrics[task]})"
                for task, metric in one.metrics.items()
                if other.metrics.get(task, metric) != metric
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


def _files(folders: Sequence[Path], pattern: str) -> list[Path]:
    """Return all files of this name, each one once."""
    found = [file for folder in folders for file in sorted(folder.resolve().rglob(pattern))]
    return list(dict.fromkeys(found))
