"""One trial of a sweep: its folder, its run in a worker, and its result."""

import json
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from data_prep.files.atomic import save_text
from data_prep.files.quoting import first_line
from finetune.models.kept_model import save_model
from finetune.protocol import Protocol
from finetune.results.model_folder import has_model, remove_model
from finetune.results.result import Status, TrialResult, predictions_file, save_result, trial_folder
from finetune.results.sweep_results import ModelRef
from finetune.sweep.references import TaskRef, load_model
from finetune.tasks.task import Answer, TaskError
from finetune.training.encoding import EncodedTask, encode_task
from finetune.training.model import attention_on, uses_bf16
from finetune.training.train import Diverged, FineTuning, Outcome, build_task_model
from pretrain.convert.pretrained import Pretrained
from pretrain.distributed.freed_memory import keep_freed_memory

CONSTANT = "it predicts the same for every example; try other learning rates, or more epochs"


@dataclass(frozen=True)
class Trial:
    """The unit of a sweep: a model, a task, a learning rate and a seed."""

    model: ModelRef
    task: TaskRef
    learning_rate: float
    seed: int

    @property
    def folder(self) -> Path:
        """Return the folder of its result, relative to the folder of the sweep."""
        return trial_folder(self.task.name, self.model, self.learning_rate, self.seed)

    @property
    def group(self) -> tuple[str, str]:
        """Return what all trials of this model on this task share, one of which is chosen."""
        return self.task.name, self.model.folder_name

    def describe(self) -> str:
        """Return its name in messages."""
        task, model = self.task.name, self.model.describe()
        return f"{task} {model} lr {self.learning_rate:g} seed {self.seed}"


# How many examples a running trial has trained on or scored, or a remark on its task.
Message = int | str
Send = Callable[[Message], None]


@dataclass(frozen=True)
class Context:
    """What all trials of a sweep share."""

    folder: Path
    protocol: Protocol
    predicts_test: bool  # whether they leave predictions of the test splits
    keeps_model: bool
    threads: int  # of each worker
    digests: Mapping[str, str]  # of the labelled examples by task, when the sweep began


class TrialRunner:
    """Runs trials in this process; keeps the last model and rows: consecutive trials share them."""

    def __init__(self, context: Context, device: str) -> None:
        """Prepare the process for trials on this device, such as "cpu" or "cuda:0"."""
        self._context, self._device = context, torch.device(device)
        # Otherwise the first bar, even a hidden one, makes a system semaphore, which leaks when the
        # process is killed.
        tqdm.set_lock(threading.RLock())
        torch.set_num_threads(context.threads)
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)
            torch.backends.cuda.enable_cudnn_sdp(False)  # as in `start_ranks`
        else:
            keep_freed_memory()
        self._loaded: tuple[ModelRef, TaskRef, Pretrained, EncodedTask] | None = None

    def __call__(self, trial: Trial, send: Send) -> None:
        """Run a trial; the process of one that failed ends.

        After a CUDA error every later trial of the process would fail.
        """
        try:
            result = self.run(trial, send)
        except OSError as error:  # its result cannot be written, as on a full disk
            sys.exit(f"{trial.describe()}: {error}")
        if result.status == "failed":
            sys.exit(1)

    def run(self, trial: Trial, send: Send) -> TrialResult:
        """Run a trial and write its result, whether it finishes, diverges or fails.

        An error of any kind ends this trial only: the sweep continues and reports it as failed.
        What an earlier run left is removed, but made again.
        """
        context, folder = self._context, self._context.folder / trial.folder
        predicts_test = context.predicts_test or any(folder.glob("predictions_test*.json"))
        keeps_model = context.keeps_model or has_model(folder)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        started = time.monotonic()
        try:
            result = self._fine_tune(trial, send, predicts_test, keeps_model)
        except Diverged as error:
            result = result_of(trial, context.protocol, "diverged", reason=str(error))
        except Exception as error:
            save_text(folder / "error.txt", traceback.format_exc())
            reason = f"{type(error).__name__}: {first_line(error)}"
            result = result_of(trial, context.protocol, "failed", reason=reason)
        is_bf16 = uses_bf16(context.protocol.precision, self._device)
        computed = {
            "seconds": round(time.monotonic() - started, 1),
            "threads": torch.get_num_threads() if self._device.type == "cpu" else None,
            "precision": "bf16" if is_bf16 else "fp32",
        }
        result = result.model_copy(update=computed)
        save_result(folder, result)
        return result

    def load(self, trial: Trial) -> tuple[Pretrained, EncodedTask]:
        """Return the model and the rows of a trial.

        Raises:
            ConfigError: the model cannot be loaded any more.
            TaskError: the task cannot be read any more, or has changed.
        """
        if self._loaded is None or self._loaded[:2] != (trial.model, trial.task):
            pretrained, protocol = load_model(trial.model.source), self._context.protocol
            data, name = trial.task.load(), trial.task.name
            if data.labelled_digest != self._context.digests[name]:
                raise TaskError(f"{name}: its examples have changed since the sweep began")
            rows = encode_task(
                data,
                pretrained.text_encoder,
                sequence_length=min(protocol.sequence_length, pretrained.sequence_length),
                orders=protocol.orders_on(name),
                balanced=protocol.class_weights == "balanced",
            )
            self._loaded = trial.model, trial.task, pretrained, rows
        return self._loaded[2:]

    def _fine_tune(
        self, trial: Trial, send: Send, predicts_test: bool, keeps_model: bool
    ) -> TrialResult:
        """Train, and write what is asked for besides the result."""
        folder, protocol = self._context.folder / trial.folder, self._context.protocol
        pretrained, data = self.load(trial)
        train = data.train.rows
        if train.num_full and not data.target.is_of_tokens:  # their windows are
            of_all = f"{train.num_full:,} of the {len(train):,} training examples"
            is_most = train.longest < protocol.sequence_length
            limit = "most that the encoder takes" if is_most else "--sequence_length"
            send(f"{of_all} fill {train.longest} tokens, the {limit}; text beyond is cut off")
        seed, rate, device = trial.seed, trial.learning_rate, self._device
        model = build_task_model(
            pretrained,
            protocol,
            target=data.target,
            seed=seed,
            takes_weights=trial.model.pretrained,
            attention=attention_on(device, pretrained.model),
        )
        tuning = FineTuning(model, data, protocol, learning_rate=rate, seed=seed, device=device)
        with SummaryWriter(str(folder)) as curves:
            outcome = tuning.run(curves, send, predicts_test=predicts_test)
        write_predictions(folder, data, outcome)
        remark = CONSTANT if outcome.is_constant else ""
        result = result_of(trial, protocol, "finished", reason=remark, scores=outcome.scores)
        if keeps_model:
            try:
                save_model(folder, tuning.model, data, pretrained, result)
            except OSError as error:  # scores are worth more than a model
                remove_model(folder)
                send(f"the model of {trial.describe()} was not kept: {error.strerror}")
        return result


def result_of(trial: Trial, protocol: Protocol, status: Status, **ending: Any) -> TrialResult:
    """Return the result of a trial that ended with this status; `ending`: reason and scores."""
    return TrialResult(
        **trial.model.model_dump(exclude={"digest"}),
        task=trial.task.name,
        protocol=protocol.name,
        learning_rate=trial.learning_rate,
        seed=trial.seed,
        epochs=protocol.epochs_on(trial.task.name),
        status=status,
        **ending,
    )


def write_predictions(folder: Path, data: EncodedTask, outcome: Outcome) -> None:
    """Write what a trial predicted into its folder, a file for each split.

    A class has its label beside it, and so has a known label; several are a list, as tags are.
    """

    def word(value: Any) -> Any:
        names = data.task.labels
        if isinstance(value, tuple):
            return [each.text if isinstance(each, Answer) else names[each] for each in value]
        return names[int(value)] if names else value

    for name, predictions in outcome.predictions.items():
        split, lines = (data.development | data.test)[name], []
        for example, value in zip(split.examples, predictions, strict=True):
            is_tags = data.task.kind == "tags"
            line = {"identity": example.identity, "prediction": word(value) if is_tags else value}
            if data.task.labels and not is_tags:
                line["label"] = word(value)
            if example.label is not None:
                line["expected"] = word(example.label)
            lines.append(line)
        save_text(predictions_file(folder, name), json.dumps(lines) + "\n")
