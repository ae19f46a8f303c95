"""One trial of a sweep: its folder, its run, and its result."""

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
from finetune.models.kept_model import has_model, remove_model, save_model
from finetune.protocol import Protocol
from finetune.results.result import Scores, TrialResult, predictions_file, read_result, save_result
from finetune.sweep.predictions import write_predictions
from finetune.sweep.references import ModelRef, TaskRef
from finetune.training.encoding import EncodedTask
from finetune.training.evaluation import attention_on, uses_bf16
from finetune.training.train import Diverged, FineTuning, build_task_model
from pretrain.convert.pretrained import Pretrained

REPORT_SECONDS = 0.5
CONSTANT = "it predicts the same for every example"


@dataclass(frozen=True)
class Trial:
    """A model, a task, a learning rate and a seed."""

    model: ModelRef
    task: TaskRef
    learning_rate: float
    seed: int

    @property
    def folder(self) -> Path:
        """Return the folder of its result, relative to the folder of the sweep."""
        return self.group / f"lr_{self.learning_rate!r}" / f"seed_{self.seed}"

    @property
    def group(self) -> Path:
        """Return the folder of all trials of this model on this task, one of which is chosen."""
        return Path(self.task.name, self.model.folder_name)

    def describe(self) -> str:
        """Return its name in messages."""
        task, model = self.task.name, self.model.describe()
        return f"{task} {model} lr {self.learning_rate:g} seed {self.seed}"


class Trained(NamedTuple):
    """A running trial has trained on this many rows more."""

    rows: int


class Scored(NamedTuple):
    """A running trial has been scored."""

    epoch: int
    scores: Scores


class Remark(NamedTuple):
    """A remark on the task of a trial."""

    text: str


class TrialOutput(NamedTuple):
    """What a trial leaves besides its scores."""

    predicts_test: bool  # predictions of the test splits
    keeps_model: bool  # its model


Message = Trained | Scored | Remark | TrialResult
Send = Callable[[Message], None]
Load = Callable[[Trial], tuple[Pretrained, EncodedTask]]


def is_over(
    folder: Path,
    *,
    test_splits: Sequence[str] = (),
    retries_failed: bool = False,
    needs_model: bool = False,
) -> bool:
    """Return whether a trial need not be run.

    Args:
        folder: of the trial.
        test_splits: whose predictions must exist if it finished.
        retries_failed: whether a failed trial is run again.
        needs_model: whether its model must exist if it finished.

    Raises:
        ConfigError: its result is damaged.
    """
    result = read_result(folder)
    if result is None or (result.status == "failed" and retries_failed):
        return False
    if result.status != "finished":
        return True
    has_predictions = all(predictions_file(folder, split).exists() for split in test_splits)
    return has_predictions and (has_model(folder) or not needs_model)


def run_trial(
    trial: Trial,
    folder: Path,
    protocol: Protocol,
    load: Load,
    *,
    device: torch.device,
    output: TrialOutput,
    send: Send,
) -> TrialResult:
    """Run a trial and write its result, whether it finishes, diverges or fails.

    An error of any kind ends this trial only: the sweep continues and reports it as failed.

    Args:
        trial: to be run.
        folder: of the trial; what an earlier run left is removed, but made again.
        protocol: of the sweep.
        load: returns model and rows.
        device: of the model.
        output: what it leaves besides its scores.
        send: called with every message but the result.
    """
    output = TrialOutput(
        output.predicts_test or any(folder.glob("predictions_test*.json")),
        output.keeps_model or has_model(folder),
    )
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    started = time.monotonic()
    try:
        result = _fine_tune(trial, folder, protocol, load, device, output, send)
    except Diverged as error:
        result = result_of(trial, protocol, "diverged", reason=str(error))
    except Exception as error:
        save_text(folder / "error.txt", traceback.format_exc())
        first_line = str(error).partition("\n")[0]
        reason = f"{type(error).__name__}: {first_line}"
        result = result_of(trial, protocol, "failed", reason=reason)
    computed = {
        "seconds": round(time.monotonic() - started, 1),
        "threads": torch.get_num_threads() if device.type == "cpu" else None,
        "precision": "bf16" if uses_bf16(protocol.precision, device) else "fp32",
    }
    result = result.model_copy(update=computed)
    save_result(folder, result)
    return result


def result_of(
    trial: Trial,
    protocol: Protocol,
    status: str,
    *,
    reason: str,
    scores: Scores | None = None,
) -> TrialResult:
    """Return the result of a trial that ended with this status."""
    return TrialResult.model_validate(
        {
            "model": trial.model.name,
            "source": trial.model.place,
            "step": trial.model.step,
            "pretrained": trial.model.pretrained,
            "task": trial.task.name,
            "protocol": protocol.name,
            "learning_rate": trial.learning_rate,
            "seed": trial.seed,
            "epochs": protocol.epochs_on(trial.task.name),
            "status": status,
            "reason": reason,
            "scores": scores or {},
        }
    )


def _fine_tune(
    trial: Trial,
    folder: Path,
    protocol: Protocol,
    load: Load,
    device: torch.device,
    output: TrialOutput,
    send: Send,
) -> TrialResult:
    """Train, and write what is asked for besides the result."""
    pretrained, data = load(trial)
    train = data.train.rows
    if train.num_full:
        of_all = f"{train.num_full:,} of the {len(train):,} training examples"
        send(Remark(f"{of_all} have {train.longest} tokens or more, and are cut to that"))
    model = build_task_model(
        pretrained,
        protocol,
        num_outputs=data.target.num_outputs,
        seed=trial.seed,
        takes_weights=trial.model.pretrained,
        attention=attention_on(device),
    )
    run = FineTuning(
        model, data, protocol, learning_rate=trial.learning_rate, seed=trial.seed, device=device
    )
    curves = Curves(folder, send)
    try:
        outcome = run.run(curves, predicts_test=output.predicts_test)
    finally:
        curves.close()
    write_predictions(folder, data, outcome)
    reason = CONSTANT if outcome.is_constant else ""
    result = result_of(trial, protocol, "finished", reason=reason, scores=outcome.scores)
    if output.keeps_model:
        try:
            save_model(folder, model, data, pretrained, result)
        except OSError as error:  # scores are worth more than a model
            remove_model(folder)
            send(Remark(f"the model of {trial.describe()} was not kept: {error.strerror}"))
    return result


class Curves:
    """Observer that writes curves to TensorBoard and sends the progress to the main process."""

    def __init__(self, folder: Path, send: Send) -> None:
        self._writer, self._send = SummaryWriter(str(folder)), send
        self._unsent, self._sent_at = 0, 0.0

    def trained(self, rows: int) -> None:
        """Count rows; they are sent twice a second."""
        self._unsent += rows
        if time.monotonic() - self._sent_at > REPORT_SECONDS:
            self._send_rows()

    def losses(self, step: int, losses: Sequence[float], learning_rate: float) -> None:
        """Write the mean of the losses."""
        self._writer.add_scalar("train/loss", sum(losses) / len(losses), step)
        self._writer.add_scalar("train/learning_rate", learning_rate, step)

    def scored(self, epoch: int, scores: Scores) -> None:
        """Write the scores."""
        for split, metrics in scores.items():
            for name, value in metrics.items():
                self._writer.add_scalar(f"{split}/{name}", value, epoch)
        self._send_rows()
        self._send(Scored(epoch, scores))

    def close(self) -> None:
        """Flush and close the file."""
        self._writer.close()

    def _send_rows(self) -> None:
        self._send(Trained(self._unsent))
        self._unsent, self._sent_at = 0, time.monotonic()
