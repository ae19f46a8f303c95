"""The files of a run folder: a model for each, the only place where they are read.

Versions differ in what they write. A field that is read has the right type and range, or the file
is refused by name: a run folder may come from another machine.
"""

import math
import os
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from data_prep.command_line import explained
from pretrain.config.errors import ConfigError
from pretrain.config.json_objects import read_json_lines, read_json_object

RUN_FILE, RESULT_FILE, LAUNCHES_FILE = "run.json", "result.json", "launches.jsonl"
DS_CONFIG_FILE = "ds_config.json"  # as DeepSpeed got it
# A start that failed leaves these: the settings, which make a folder a run, are written last.
WRITTEN_BEFORE = ("lock", "tokenizer.json", "manifest.json", DS_CONFIG_FILE, RUN_FILE)
FIX = "restore it from a copy, or do without this run"

# Of a run that an anomaly has met, see stability/monitor.py.
DECISIONS = "trouble/decisions.jsonl"

# In nats below the unigram entropy. A masked language model first learns how often words occur, and
# its held-out loss rests near the entropy of these frequencies until attention is of use. At 0.3 a
# loss falls quickly, so that the place is sharp.
PLATEAU_MARGIN = 0.3

Count = Annotated[int, Field(ge=0, lt=1 << 63)]
# Sums and products of amounts stay finite.
Amount = Annotated[float, Field(ge=0, le=1e30)]
Speed = Annotated[float, Field(ge=1e-30, le=1e30)]
Loss = Annotated[float, AfterValidator(lambda loss: loss if abs(loss) < 1e30 else math.inf)]
Word = Annotated[str, Field(max_length=10_000)]
Kind = TypeVar("Kind", bound=BaseModel)


class _Line(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")


class _Totals(_Line):
    step: Count  # 0: of the weights that a run began with
    tokens: Count
    training_seconds: Amount
    flops: Amount


class EvaluationLine(_Totals):
    """A line of evals.jsonl."""

    loss: Loss  # infinity: diverged, NaN too


class Metrics(_Totals):
    """A line of metrics.jsonl; fields with a default are missing in older versions."""

    loss: Loss
    learning_rate: Amount
    theta: Amount
    keep_rates: list[Amount]
    tokens_per_second: Speed
    model_flops_utilisation: Amount = 0.0
    peak_memory_bytes: Count = 0
    processor_wait_share: Amount | None = None


class _MicroBatches(_Line):
    sequences: Annotated[int, Field(ge=1, lt=1 << 31)] | None = None


class Launch(_Line):
    """A line of launches.jsonl; fields with a default are missing in older versions."""

    world_size: Annotated[int, Field(ge=1, lt=1 << 31)]
    at: Word
    commit: Word
    device: Word
    source: str
    held_out: Word
    training_data: Word
    versions: dict[Word, Word]
    frequency_entropy: Amount | None = None
    changed_settings: dict[Word, Annotated[list[Any], Field(min_length=2, max_length=2)]] = {}
    uncommitted: str = ""
    hosts: Count | None = None
    threads: Count | None = None
    precision: Word | None = None
    zero_stage: Count | None = None
    manifest: Word | None = None
    tokenizer: Word | None = None
    variables: dict[Word, Word] = {}
    micro_batches: _MicroBatches = _MicroBatches()


class Result(_Line):
    """result.json: a run is finished."""

    step: Count
    held_out_loss: Loss = math.inf
    parameters: Count
    final_learning_rate: Amount
    peak_learning_rate: Speed
    expected_flops: Amount | None = None  # missing in older versions


def hint_at_runs(folder: Path) -> str:
    """Return a hint at the runs in a folder, such as that of a sweep; empty: there are none."""
    found = sorted(folder.glob(f"*/{RUN_FILE}"))
    return f"; give one of the runs in it, such as {found[0].parent}" if found else ""


def refuse_to_start(folder: Path) -> None:
    """Refuse to start a run where there is one, or anything else.

    Raises:
        ConfigError: the folder holds a run or other files, is a file, or may not be written.
    """
    if (folder / RUN_FILE).exists():
        continues = "; continue it with --resume"
        if (folder / RESULT_FILE).exists():
            continues = ", which is finished; --resume reports whether and how to train it longer"
        raise ConfigError(
            f"{folder} already holds a run{continues}, or choose another --run-folder"
        )
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; choose a new folder with --run-folder")
    there = next(one for one in (folder, *folder.absolute().parents) if one.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        raise ConfigError(f"{there} may not be written; choose another folder with --run-folder")
    names = (entry.name.partition(".partial-")[0] for entry in folder.glob("*"))
    if other := sorted(name for name in names if name not in WRITTEN_BEFORE):
        raise ConfigError(
            f"{folder} holds {other[0]}, which is no part of a run; choose a new or empty folder "
            "with --run-folder"
        )


def was_stopped_by_anomaly(folder: Path) -> bool:
    """Return whether an anomaly was the end of a run, which has not been started again since."""
    decisions = read_json_lines(folder / DECISIONS, fix=FIX)
    if not decisions or decisions[-1].get("action") != "stop":
        return False
    launch, at = last_launch(folder), decisions[-1].get("at")
    return not (launch and at) or datetime.fromisoformat(launch.at) <= datetime.fromisoformat(at)


def has_ended(folder: Path) -> bool:
    """Return whether nothing is left to train: what an anomaly stopped would diverge again."""
    return (folder / RESULT_FILE).exists() or was_stopped_by_anomaly(folder)


def diverged_at_once(folder: Path) -> bool:
    """Return whether an anomaly stopped a run before it had a finite held-out loss after step 0."""
    if (folder / RESULT_FILE).is_file() or not was_stopped_by_anomaly(folder):
        return False
    lines = read_checked_lines(folder / "evals.jsonl", EvaluationLine)
    return not any(line["step"] and math.isfinite(line["loss"]) for line in lines)


def settings_of(folder: Path) -> dict[str, Any]:
    """Return the settings of a run by section, as its version wrote them; see `stored_settings`.

    Raises:
        ConfigError: run.json is missing or damaged.
    """
    return read_json_object(folder / RUN_FILE, fix=FIX)


def result_of(folder: Path) -> Result | None:
    """Return the end of a run; None: it is not finished.

    Raises:
        ConfigError: result.json is damaged.
    """
    file = folder / RESULT_FILE
    if not file.exists():
        return None
    return _checked(read_json_object(file, fix=FIX), Result, str(file))


def last_launch(folder: Path) -> Launch | None:
    """Return the newest line of launches.jsonl; None: there is none.

    Raises:
        ConfigError: it is damaged.
    """
    file = folder / LAUNCHES_FILE
    lines = read_json_lines(file, fix=FIX)
    return _checked(lines[-1], Launch, f"line {len(lines)} of {file}") if lines else None


def read_checked_lines(file: Path, kind: type[BaseModel]) -> list[dict[str, Any]]:
    """Return the complete lines of a file of a run folder; none where there is no file.

    Raises:
        ConfigError: a line cannot be read, or does not match `kind`.
    """
    lines = enumerate(read_json_lines(file, fix=FIX), 1)
    found = [_checked(line, kind, f"line {n} of {file}") for n, line in lines]
    return [line.model_dump(exclude_unset=True) for line in found]


def _checked(content: dict[str, Any], kind: type[Kind], place: str) -> Kind:
    with explained(f"{place} is damaged: ", end=f"; {FIX}"):
        return kind.model_validate(content)
