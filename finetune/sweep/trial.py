"""One cell of a grid, its folder, and the run that fills it."""

import json
import shutil
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch.utils.tensorboard import SummaryWriter

from data_prep.files.atomic import save_text
from finetune.protocol import Protocol
from finetune.results.result import Result, Scores, read_result, save_result
from finetune.sweep.sources import Source, TaskSource
from finetune.tasks.glue import Task
from finetune.training.batches import EncodedTask
from finetune.training.train import Diverged, FineTuning, Outcome, build_task_model
from pretrain.convert.pretrained import Pretrained

REPORT_SECONDS = 0.5
CONSTANT = "it predicts the same for every row"


@dataclass(frozen=True)
class Cell:
    """A model, a task, a learning rate and a seed: one fine-tuning run."""

    source: Source
    task: TaskSource
    learning_rate: float
    seed: int

    @property
    def folder(self) -> Path:
        """Return where its result is, inside the folder of the grid."""
        rate = f"lr_{self.learning_rate!r}"
        return Path(self.task.task.name, self.source.folder_name, rate, f"seed_{self.seed}")

    def describe(self) -> str:
        """Return how the user is told of it."""
        task, model = self.task.task.name, self.source.describe()
        return f"{task} {model} lr {self.learning_rate:g} seed {self.seed}"


class Trained(NamedTuple):
    """A running cell has trained on so many rows more."""

    rows: int


class Scored(NamedTuple):
    """A running cell has been scored."""

    epoch: int
    scores: Scores


class Remark(NamedTuple):
    """There is something to know about the task of a cell."""

    text: str


Message = Trained | Scored | Remark | Result
Send = Callable[[Message], None]


def is_over(folder: Path, *, test_splits: Sequence[str] = (), retries_failed: bool = False) -> bool:
    """Return whether a cell needs no run any more.

    Args:
        folder: of the cell.
        test_splits: whose predictions must be there, if it came to its end.
        retries_failed: whether a failed one is run again.

    Raises:
        ConfigError: its result is damaged.
    """
    result = read_result(folder)
    if result is None or (result.status == "failed" and retries_failed):
        return False
    lacks_predictions = any(not predictions_file(folder, split).exists() for split in test_splits)
    return result.status != "finished" or not lacks_predictions


def predictions_file(folder: Path, split: str) -> Path:
    """Return where the predictions of a test split are."""
    return folder / f"predictions_{split}.json"


def run_cell(
    cell: Cell,
    folder: Path,
    protocol: Protocol,
    load: Callable[[Cell], tuple[Pretrained, EncodedTask]],
    *,
    device: torch.device,
    predicts_test: bool,
    send: Send,
) -> Result:
    """Run a cell to whatever end it takes, and write its result.

    An error of any kind ends this run only: the grid goes on, and reports it as failed.

    Args:
        cell: what to run.
        folder: of the cell; what an interrupted run left in it is removed.
        protocol: how.
        load: returns model and rows.
        device: where.
        predicts_test: whether predictions of the test splits are written.
        send: is told how it comes along, but not the result.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    started = time.monotonic()
    try:
        outcome = _fine_tune(cell, folder, protocol, load, device, predicts_test, send)
    except Diverged as error:
        result = result_of(cell, protocol, "diverged", reason=str(error))
    except Exception as error:
        save_text(folder / "error.txt", traceback.format_exc())
        first_line = str(error).partition("\n")[0]
        result = result_of(cell, protocol, "failed", reason=f"{type(error).__name__}: {first_line}")
    else:
        reason = CONSTANT if outcome.is_constant else ""
        result = result_of(cell, protocol, "finished", reason=reason, scores=outcome.scores)
    result = result.model_copy(update={"seconds": round(time.monotonic() - started, 1)})
    save_result(folder, result)
    return result


def result_of(
    cell: Cell,
    protocol: Protocol,
    status: str,
    *,
    reason: str,
    scores: Scores | None = None,
) -> Result:
    """Return the result of a cell that ended so."""
    return Result.model_validate(
        {
            "model": cell.source.name,
            "source": cell.source.place,
            "step": cell.source.step,
            "pretrained": cell.source.pretrained,
            "task": cell.task.task.name,
            "protocol": protocol.name,
            "learning_rate": cell.learning_rate,
            "seed": cell.seed,
            "epochs": protocol.epochs_on(cell.task.task.name),
            "status": status,
            "reason": reason,
            "scores": scores or {},
        }
    )


def _fine_tune(
    cell: Cell,
    folder: Path,
    protocol: Protocol,
    load: Callable[[Cell], tuple[Pretrained, EncodedTask]],
    device: torch.device,
    predicts_test: bool,
    send: Send,
) -> Outcome:
    pretrained, data = load(cell)
    train = data.train.rows
    if train.num_full:
        reach = (
            f"{train.num_full:,} of the {len(train):,} training rows reach {train.longest} tokens"
        )
        send(Remark(f"{reach}, where rows are cut"))
    model = build_task_model(
        pretrained,
        protocol,
        num_outputs=data.target.num_outputs,
        seed=cell.seed,
        takes_weights=cell.source.pretrained,
        # torch's kernels take the padding and the bias of any variant; on a CPU they are slower.
        attention="sdpa" if device.type == "cuda" else "eager",
    )
    run = FineTuning(
        model, data, protocol, learning_rate=cell.learning_rate, seed=cell.seed, device=device
    )
    curves = Curves(folder, send)
    try:
        outcome = run.run(curves, predicts_test=predicts_test)
    finally:
        curves.close()
    for split, predictions in outcome.predictions.items():
        rows = zip(data.test[split].identities, predictions, strict=True)
        lines = [_predicted(data.task, identity, value) for identity, value in rows]
        save_text(predictions_file(folder, split), json.dumps(lines) + "\n")
    return outcome


def _predicted(task: Task, identity: str, value: float) -> dict[str, str | float]:
    """Return a prediction as it is written, a class with its label too."""
    label = {"label": task.labels[int(value)]} if task.kind == "classification" else {}
    return {"identity": identity, "prediction": value, **label}


class Curves:
    """Writes the curves of a run to TensorBoard, and tells the grid how it comes along."""

    def __init__(self, folder: Path, send: Send) -> None:
        self._writer, self._send = SummaryWriter(str(folder)), send
        self._unsent, self._sent_at = 0, 0.0

    def trained(self, rows: int) -> None:
        """Count rows; the grid is told twice a second."""
        self._unsent += rows
        if time.monotonic() - self._sent_at > REPORT_SECONDS:
            self._tell_rows()

    def losses(self, step: int, losses: Sequence[float], learning_rate: float) -> None:
        """Write the mean of the losses."""
        self._writer.add_scalar("train/loss", sum(losses) / len(losses), step)
        self._writer.add_scalar("train/learning_rate", learning_rate, step)

    def scored(self, epoch: int, scores: Scores) -> None:
        """Write the scores."""
        for split, metrics in scores.items():
            for name, value in metrics.items():
                self._writer.add_scalar(f"{split}/{name}", value, epoch)
        self._tell_rows()
        self._send(Scored(epoch, scores))

    def close(self) -> None:
        """Write out what is buffered."""
        self._writer.close()

    def _tell_rows(self) -> None:
        self._send(Trained(self._unsent))
        self._unsent, self._sent_at = 0, time.monotonic()
