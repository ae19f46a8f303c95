"""The result of one trial of a fine-tuning sweep, and the layout of the sweep's folder.

FOLDER/grid.json                                the trials that were requested
FOLDER/majority.json                            scores of the majority class, by task
FOLDER/TASK/MODEL/lr_3e-05/seed_0/result.json   written last: without it the trial is not over
FOLDER/TASK/MODEL/lr_3e-05/seed_0/predictions_SPLIT.json   of development sets; of test sets, if
                                                           requested
FOLDER/TASK/MODEL/lr_3e-05/seed_0/model/        its model, if it is kept: models/kept_model.py
"""

from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from data_prep.files.atomic import save_text
from data_prep.files.quoting import plain
from data_prep.files.strict_json import JsonError, json_in
from data_prep.files.whole_file import content_of
from pretrain.config.errors import ConfigError

RESULT_FILE = "result.json"
SWEEP_FILE = "grid.json"
MAJORITY_FILE = "majority.json"
RESULTS_OF_CELL = f"lr_*/seed_*/{RESULT_FILE}"  # below the folder of a model on a task
Content = TypeVar("Content")

# Evaluation split, such as "dev" or "dev_mismatched" -> metric -> value as a fraction of 1.
Metrics = Annotated[dict[str, FiniteFloat], Field(min_length=1)]
Scores = dict[str, Metrics]


class TrialResult(BaseModel):
    """How one trial ended: one model, task, learning rate and seed."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    model: str  # its name in tables
    source: str  # where the weights came from
    step: int | None = Field(ge=0, lt=1 << 63)  # of pre-training; None: unknown
    pretrained: bool  # False: the same encoder with new weights
    task: str
    protocol: str
    learning_rate: float = Field(gt=0)
    seed: int = Field(ge=0)
    epochs: int = Field(ge=1)
    status: Literal["finished", "diverged", "failed"]
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
    try:
        content = content_of(file)
        json_in(content)
        return kind.validate_json(content, strict=True)
    except (JsonError, OSError) as error:
        reason = f"its text: {error}"
    except ValidationError as error:
        first = error.errors()[0]
        reason = f"{plain('.'.join(str(part) for part in first['loc']))}: {first['msg']}"
    raise ConfigError(f"{file} is damaged: {reason}; {fix}")


def predictions_file(folder: Path, split: str) -> Path:
    """Return the path of the predictions of a split in the folder of a trial."""
    return folder / f"predictions_{split}.json"
