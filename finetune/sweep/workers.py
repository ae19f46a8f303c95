"""Run the trials of a sweep in worker processes, one at a time in each.

The death of a worker fails its trial only. There is one worker per GPU or, on a CPU, one
single-threaded worker per core: small models use the cores better that way.
"""

import contextlib
import multiprocessing
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

import torch
from tqdm import tqdm

from data_prep.files.workers import begin_worker
from data_prep.shards.manifest import TokenizerRecord
from finetune.protocol import Protocol
from finetune.results.result import TrialResult, save_result
from finetune.sweep.references import ModelRef, TaskRef
from finetune.sweep.trial import Message, Trial, TrialOutput, result_of, run_trial
from finetune.tasks.task import TaskData, TaskError
from finetune.training.encoding import EncodedTask, encode_task
from pretrain.convert.pretrained import Pretrained
from pretrain.distributed.freed_memory import keep_freed_memory

# "spawn": a forked process cannot use CUDA, and may inherit a lock that is never released.
SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class SweepContext:
    """What all trials of a sweep share."""

    folder: Path
    protocol: Protocol
    output: TrialOutput
    threads: int  # of each worker
    # Of the labelled examples and of each test split, by task.
    digests: Mapping[str, tuple[str, dict[str, str]]]


class Worker:
    """A worker process, seen from the main process."""

    def __init__(self, context: SweepContext, device: str) -> None:
        self.trial: Trial | None = None
        self.device = device
        self.connection, theirs = SPAWN.Pipe()
        self._process: SpawnProcess = SPAWN.Process(
            target=run_worker, args=(theirs, context, device), daemon=True
        )
        with _interrupts_ignored():
            self._process.start()
        theirs.close()  # otherwise the connection would outlive the process

    def start(self, trial: Trial) -> None:
        """Start a trial in it."""
        self.trial = trial
        # It may have died while it was idle; reading its next message reports that.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(trial)

    def cause_of_death(self) -> str:
        """Wait until the process has ended, and return the reason."""
        self._process.join()
        code = self._process.exitcode or 0
        if code >= 0:
            return f"the worker process ended with exit code {code}"
        name = signal.Signals(-code).name
        memory = ", often for lack of memory: use fewer --workers" if name == "SIGKILL" else ""
        return f"the worker process was ended by {name}{memory}"

    def stop(self) -> None:
        """Terminate the process."""
        self._process.terminate()
        self._process.join()


def run_trials(
    trials: Sequence[Trial], context: SweepContext, devices: Sequence[str]
) -> Iterator[tuple[Trial, Message]]:
    """Run all trials, and yield the messages of each; the last one is its `TrialResult`.

    Args:
        trials: in the order in which they are started.
        context: what they share.
        devices: one for each worker, such as "cpu" or "cuda:0".
    """
    waiting = deque(trials)
    workers = [Worker(context, device) for device in devices[: len(trials)]]
    try:
        for worker in workers:
            worker.start(waiting.popleft())
        while busy := {w.connection: w for w in workers if w.trial is not None}:
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index]
                assert worker.trial is not None
                trial, message = worker.trial, _next_message(worker, context)
                yield trial, message
                if isinstance(message, TrialResult):
                    worker.trial = None
                    if message.status == "failed":
                        # After a CUDA error every later trial of the process would fail.
                        worker.stop()
                        workers.remove(worker)
                        if waiting:
                            worker = Worker(context, worker.device)
                            workers.append(worker)
                    if waiting:
                        worker.start(waiting.popleft())
    finally:
        for worker in workers:
            worker.stop()


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Let processes that are started here ignore Ctrl-C from the start."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _next_message(worker: Worker, context: SweepContext) -> Message:
    """Return the next message of a worker; if it died, the failed result of its trial."""
    try:
        message: Message = worker.connection.recv()
    except (EOFError, OSError):  # the latter within a message
        assert worker.trial is not None
        result = result_of(worker.trial, context.protocol, "failed", reason=worker.cause_of_death())
        folder = context.folder / worker.trial.folder
        folder.mkdir(parents=True, exist_ok=True)  # it may have died before making it
        save_result(folder, result)
        return result
    return message


def run_worker(connection: Connection, context: SweepContext, device: str) -> None:
    """Run the trials received from the connection, until the main process ends this one."""
    begin_worker()
    # Otherwise the first bar, even a hidden one, makes a system semaphore, which leaks when the
    # process is killed.
    tqdm.set_lock(threading.RLock())
    torch.set_num_threads(context.threads)
    place = torch.device(device)
    if place.type == "cuda":
        torch.cuda.set_device(place)
    else:
        keep_freed_memory()
    cache = Cache(context.protocol, context.digests)
    while True:
        trial = connection.recv()
        try:
            result = run_trial(
                trial,
                context.folder / trial.folder,
                context.protocol,
                cache.load,
                device=place,
                output=context.output,
                send=connection.send,
            )
        except OSError as error:  # its result cannot be written, as on a full disk
            sys.exit(f"{trial.describe()}: {error}")
        connection.send(result)


class Cache:
    """Keeps the last model and rows: consecutive trials share them."""

    def __init__(
        self, protocol: Protocol, digests: Mapping[str, tuple[str, dict[str, str]]]
    ) -> None:
        self._protocol, self._digests = protocol, digests
        self._ref: ModelRef | None = None
        self._pretrained: Pretrained | None = None
        self._rows_of: tuple[TaskRef, str, TokenizerRecord, int] | None = None
        self._rows: EncodedTask | None = None

    def load(self, trial: Trial) -> tuple[Pretrained, EncodedTask]:
        """Return the model and the rows of a trial.

        Raises:
            ConfigError: the model cannot be loaded any more, or has other weights.
            TaskError: the task cannot be read any more, or has other examples.
        """
        if self._pretrained is None or self._ref != trial.model:
            self._pretrained, self._ref = trial.model.load(), trial.model
        text_encoder = self._pretrained.text_encoder
        length = min(self._protocol.sequence_length, self._pretrained.sequence_length)
        wanted = (
            trial.task,
            text_encoder.tokenizer.to_str(),
            text_encoder.record,  # whether Moses comes first
            length,
        )
        if self._rows is None or self._rows_of != wanted:
            self._rows = encode_task(
                self._read(trial.task),
                text_encoder,
                sequence_length=length,
                orders=self._protocol.orders_on(trial.task.name),
            )
            self._rows_of = wanted
        return self._pretrained, self._rows

    def _read(self, task: TaskRef) -> TaskData:
        data, (labelled, test) = task.load(), self._digests[task.name]
        # A test split more is one of the Hub that could not be read at the start.
        if data.labelled_digest != labelled or not test.items() <= data.test_digests.items():
            raise TaskError(
                f"the examples of {task.name} have changed since this sweep was started; "
                "restore the files, or choose another folder (--to FOLDER)"
            )
        return data
