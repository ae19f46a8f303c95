"""What the folders of sweeps hold: requests (grid.json), results, and majority-class scores."""

import itertools
import operator
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from data_prep.files.program import shell_command
from finetune.results.result import (
    MAJORITY_FILE,
    RESULT_FILE,
    SWEEP_FILE,
    Scores,
    StartingModel,
    TableRow,
    TrialResult,
    read_json,
    read_result,
)
from pretrain.config.errors import ConfigError
from pretrain.config.run_files import RUN_FILE

# Settings that protocols have had since then, with what the sweeps before them did.
ADDED_SETTINGS: dict[str, Any] = {"layer_decay": 1.0, "both_orders": [], "class_weights": "none"}
Keep = Literal["best", "all", "none"]
DEFAULT_KEEP: Keep = "best"
REPEAT = "remove it, and repeat the command of this sweep, which writes it again"


class ModelRef(StartingModel):
    """A model of a sweep."""

    digest: str  # of the weights; without pre-training, of shape and tokenizer


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


def differences(old: SweepRecord, new: SweepRecord, *, in_one_folder: bool) -> list[str]:
    """Return in what two sweeps differ, so that their scores cannot be compared.

    Args:
        old: one of them.
        new: the other.
        in_one_folder: whether models of one name are one, wherever they came from.
    """
    before, now = ({**ADDED_SETTINGS, **record.protocol} for record in (old, new))
    names = [one for one in sorted(before | now) if before.get(one) != now.get(one)]
    # What follows from another change is no news: `load_protocol` makes it.
    follows = {"name", "epochs_of"} if "epochs" in names else {"name"}
    changed = [one for one in names if one not in follows] or names
    examples = [(old.data, new.data), *([(old.test, new.test)] if in_one_folder else [])]
    return [
        *(f"{name} ({before.get(name)} and {now.get(name)})" for name in changed),
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
    places = list(dict.fromkeys(folder.resolve() for folder in folders))
    found = {file.parent: read_sweep_record(file.parent) for file in _files(places, SWEEP_FILE)}
    sweeps = {folder: record for folder, record in found.items() if record is not None}
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
    metrics = {task: name for record in sweeps.values() for task, name in record.metrics.items()}
    trials: dict[tuple[TableRow, str, float, int], EndedTrial] = {}
    for folder in places:
        below = [place for place in sweeps if folder in place.parents]
        ended = [ended_trials(place, sweeps.get(place), metrics) for place in (folder, *below)]
        if not any(ended):
            raise ConfigError(
                f"{folder} holds no result of fine-tuning; fine-tune first with: "
                f"{shell_command('finetune', 'run', 'RUN')}"
            )
        for trial in itertools.chain.from_iterable(ended):
            result, begun = trial.result, next(iter(trials.values()), trial)
            if result.protocol != begun.result.protocol:
                raise ConfigError(
                    f"{begun.folder} follows protocol {begun.result.protocol}, {trial.folder} "
                    f"protocol {result.protocol}: their scores cannot be compared; name the "
                    f"folders of one protocol, such as RUN/finetune/{result.protocol}"
                )
            key = (trial.row, result.task, result.learning_rate, result.seed)
            known = trials.setdefault(key, trial)
            if known.result.status == "failed":  # another folder may hold one that ended
                trials[key] = trial
            elif result.status != "failed" and result.scores != known.result.scores:
                raise ConfigError(
                    f"{known.folder} and {trial.folder} are the same trial of {trial.row.model} on "
                    f"{result.task}, with different scores; leave one of the folders out"
                )
    majority: dict[str, Scores] = {}  # of each task the first: other examples are refused
    for file in _files(places, MAJORITY_FILE):
        for task, stored in read_majority(file.parent).items():
            majority.setdefault(task, with_main_first(stored, metrics.get(task), file))
    return SweepResults(list(trials.values()), list(sweeps.values()), majority)


def ended_trials(
    folder: Path, record: SweepRecord | None = None, metrics: Mapping[str, str] | None = None
) -> list[EndedTrial]:
    """Return the trials of one sweep that are over, in whichever folders below it they are.

    Args:
        folder: of the sweep, or one within it.
        record: of the sweep.
        metrics: the main one of tasks, which comes first; others stand as they are stored.

    Raises:
        ConfigError: a result is damaged, or lacks the main metric of its task.
    """
    # A sweep holds one model of a name; its run may have been moved between two of the results.
    rows = {model.folder_name: model.row for model in record.models} if record else {}
    others = [file.parent for file in _files([folder], SWEEP_FILE) if file.parent != folder]
    trials = []
    for place in (file.parent for file in _files([folder], RESULT_FILE)):
        # A run of pre-training has a result beside its settings.
        if (place / RUN_FILE).exists() or any(other in place.parents for other in others):
            continue
        result = read_result(place)
        assert result is not None
        scores = with_main_first(result.scores, (metrics or {}).get(result.task), place)
        row = rows.get(result.folder_name, result.row)
        trials.append(EndedTrial(place, row, result.model_copy(update={"scores": scores})))
    return trials


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


def _files(folders: Iterable[Path], name: str) -> list[Path]:
    """Return all files of this name, each one once."""
    found = [file for folder in folders for file in sorted(folder.rglob(name))]
    return list(dict.fromkeys(found))
