"""The result of one trial of a fine-tuning sweep, and the layout of the sweep's folder.

FOLDER/grid.json                                     the trials that were requested
FOLDER/majority.json                                 scores of the majority class, by task
FOLDER/TASK/MODEL-3e-05-seed0/result.json            written last: without it the trial is not over
FOLDER/TASK/MODEL-3e-05-seed0/predictions_SPLIT.json of development sets; of test sets, if requested
FOLDER/TASK/MODEL-3e-05-seed0/model/                 its model, if it is kept: models/kept_model.py

Results are found by their records, in whichever folders they are: once, it was MODEL/lr_R/seed_N.
"""

import re
from pathlib import Path, PurePath
from typing import Annotated, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, TypeAdapter, model_validator

from data_prep.files.atomic import save_text
from pretrain.config.json_objects import read_json_object
from pretrain.config.settings import explained
from pretrain.train.sweeps.pool import unit_folder

RESULT_FILE = "result.json"
SWEEP_FILE = "grid.json"
MAJORITY_FILE = "majority.json"
WITHOUT_PRETRAINING = "without pre-training"
Content = TypeVar("Content")

# Evaluation split, such as "dev" or "dev_mismatched" -> metric -> value as a fraction of 1.
Metrics = Annotated[dict[str, FiniteFloat], Field(min_length=1)]
Scores = dict[str, Metrics]
Status = Literal["finished", "diverged", "failed"]


class TableRow(NamedTuple):
    """A model at one step of its pre-training: one row of the table."""

    model: str
    origin: str  # the run or folder that the weights came from
    step: int | None
    pretrained: bool = True


class StartingModel(BaseModel):
    """What a trial starts from: one checkpoint, export or external model."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    model: str  # its name in tables
    source: str  # where the weights come from; of a run it is one of its checkpoints
    step: int | None = Field(ge=0, lt=1 << 63)  # of pre-training; None: unknown
    pretrained: bool  # False: the same encoder with new weights

    @property
    def folder_name(self) -> str:
        """Return its name in folders; it contains no path separators."""
        extra = "" if self.step is None else f" step_{self.step:08d}"
        if not self.pretrained:
            extra = f" {WITHOUT_PRETRAINING}"
        return re.sub(r"^\.+|[^\w.-]+", "-", self.model + extra)

    @property
    def row(self) -> TableRow:
        """Return its row of a table: new weights are the same beside whichever checkpoint."""
        step = self.step if self.pretrained else None
        return TableRow(self.model, str(run_of(self.source)), step, self.pretrained)

    def describe(self) -> str:
        """Return its name in messages."""
        if not self.pretrained:
            return f"{self.model} {WITHOUT_PRETRAINING}"
        return self.model if self.step is None else f"{self.model} step {self.step:,}"


class TrialResult(StartingModel):
    """How one trial ended: one model, task, learning rate and seed."""

    task: str
    protocol: str
    learning_rate: float = Field(gt=0)
    seed: int = Field(ge=0)
    epochs: int = Field(ge=1)
    status: Status
    reason: str = ""  # why it is not finished, or a remark on its scores
    scores: Scores = {}  # after the last epoch, not after the best one
    seconds: float = Field(0.0, ge=0)
    threads: int | None = Field(None, ge=1)  # on a CPU: sums are rounded otherwise with others
    precision: Literal["bf16", "fp32"] | None = None  # of matrix products; None: not recorded

    @model_validator(mode="after")
    def _check_scores(self) -> "TrialResult":
        if self.status == "finished" and not self.scores:
            raise ValueError("a finished trial has scores")
        return self

    @property
    def folder(self) -> Path:
        """Return the folder that the trial has in that of its sweep."""
        return trial_folder(self.task, self, self.learning_rate, self.seed)


def trial_folder(task: str, model: StartingModel, learning_rate: float, seed: int) -> Path:
    """Return the folder of a trial, relative to that of its sweep."""
    return unit_folder(Path(task), model.folder_name, seed, [repr(learning_rate)])


def run_of(place: str | PurePath) -> PurePath:
    """Return the run that a checkpoint RUN/checkpoints/NAME belongs to, or the place itself."""
    place = PurePath(place)
    return place.parent.parent if place.parent.name == "checkpoints" else place


def save_result(folder: Path, result: TrialResult) -> None:
    """Write result.json atomically."""
    save_text(folder / RESULT_FILE, result.model_dump_json(indent=1) + "\n")


def read_result(folder: Path) -> TrialResult | None:
    """Return how the trial in this folder ended; None: it has not.

    Raises:
        ConfigError: result.json is damaged.
    """
    file = folder / RESULT_FILE
    kind = TypeAdapter(TrialResult)
    return read_json(file, kind, "remove it to repeat that trial") if file.is_file() else None


def read_json(file: Path, kind: TypeAdapter[Content], fix: str) -> Content:
    """Return the content of a file, validated strictly.

    Raises:
        ConfigError: it is damaged; names the first error and the fix.
    """
    read_json_object(file, fix=fix)  # refuses what cannot be read, or is no object
    with explained(f"{file} is damaged: ", end=f"; {fix}"):
        return kind.validate_json(file.read_bytes(), strict=True)


def predictions_file(folder: Path, split: str) -> Path:
    """Return the path of the predictions of a split in the folder of a trial."""
    return folder / f"predictions_{split}.json"
