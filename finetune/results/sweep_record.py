"""The trials requested of a sweep (grid.json), and the majority-class scores (majority.json)."""

import itertools
import operator
import re
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from finetune.results.result import MAJORITY_FILE, SWEEP_FILE, Scores, read_json
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
