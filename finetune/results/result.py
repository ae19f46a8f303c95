"""What one fine-tuning run leaves behind, and how all of a grid are found again.

FOLDER/grid.json                                what was asked for
FOLDER/majority.json                            scores without a model, by task
FOLDER/TASK/MODEL/lr_3e-05/seed_0/result.json   written last: without it the run is not over
FOLDER/TASK/MODEL/lr_3e-05/seed_0/predictions_SPLIT.json   of test sets, where asked for
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, model_validator

from data_prep.files.atomic import save_text
from data_prep.files.strict_json import JsonError, json_in
from pretrain.config.errors import ConfigError

RESULT_FILE = "result.json"
GRID_FILE = "grid.json"
MAJORITY_FILE = "majority.json"

# Evaluation split, such as "dev" or "dev_mismatched" -> metric -> value as a fraction of 1.
Metrics = Annotated[dict[str, FiniteFloat], Field(min_length=1)]
Scores = dict[str, Metrics]


class Result(BaseModel):
    """The end of one fine-tuning run: one model, task, learning rate and seed."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    model: str  # what tables call it
    source: str  # where the weights came from
    step: int | None = Field(ge=0)  # of pre-training; None: not known
    pretrained: bool  # False: the same encoder with new weights
    task: str
    protocol: str
    learning_rate: float = Field(gt=0)
    seed: int = Field(ge=0)
    epochs: int = Field(ge=1)
    status: Literal["finished", "diverged", "failed"]
    reason: str = ""  # why it is not finished, or what is strange about it
    scores: Scores = {}  # after the last epoch, not after the best one
    seconds: float = Field(0.0, ge=0)

    @model_validator(mode="after")
    def _check_scores(self) -> "Result":
        if self.status == "finished" and not self.scores:
            raise ValueError("a run that is finished has scores")
        return self


def save_result(folder: Path, result: Result) -> None:
    """Write result.json in one piece."""
    save_text(folder / RESULT_FILE, result.model_dump_json(indent=1) + "\n")


def read_result(folder: Path) -> Result | None:
    """Return how the run in this folder ended; None where it has not.

    Raises:
        ConfigError: result.json is damaged.
    """
    file = folder / RESULT_FILE
    if not file.is_file():
        return None
    try:
        content = file.read_bytes()
        json_in(content)
        return Result.model_validate_json(content, strict=True)
    except (ValidationError, JsonError):
        raise ConfigError(f"{file} is damaged; remove it, and that run is repeated") from None


def read_results(folder: Path) -> dict[Path, Result]:
    """Return all results under a folder by the folders of their runs, in the order of their paths.

    Raises:
        ConfigError: one is damaged, or there is none.
    """
    folders = [file.parent for file in sorted(folder.rglob(f"lr_*/seed_*/{RESULT_FILE}"))]
    found = {run: read_result(run) for run in folders}
    results = {run: result for run, result in found.items() if result is not None}
    if not results:
        raise ConfigError(
            f"{folder} holds no result of fine-tuning; make some with ./run_finetune.sh RUN"
        )
    return results
