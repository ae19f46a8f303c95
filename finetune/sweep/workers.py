"""Run the cells of a grid in worker processes, one at a time in each, and survive their deaths.

Every worker is a process of its own: on GPUs one for each of them, on a CPU one for each core with
one thread, which small models use better than all cores together.
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
from finetune.protocol import Protocol
from finetune.results.result import Result, save_result
from finetune.sweep.sources import Source, TaskSource
from finetune.sweep.trial import Cell, Message, result_of, run_cell
from finetune.tasks.glue import TaskData, TaskError
from finetune.training.batches import EncodedTask, encode_task
from pretrain.convert.pretrained import Pretrained

# "spawn": a forked process cannot use CUDA, and may inherit a lock that is never opened.
SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Work:
    """What all cells of a grid share."""

    folder: Path
    protocol: Protocol
    predicts_test: bool
    threads: int  # of each worker
    digests: Mapping[str, tuple[str, str]]  # of the labelled and the test examples, by task


class Worker:
    """A worker process, seen from the main process."""

    def __init__(self, work: Work, device: str) -> None:
        self.cell: Cell | None = None
        self.device = device
        self.connection, theirs = SPAWN.Pipe()
        self._process: SpawnProcess = SPAWN.Process(
            target=run_worker, args=(theirs, work, device), daemon=True
        )
        with _interrupts_ignored():
            self._process.start()
        theirs.close()  # else the end of the process would not end the connection

    def give(self, cell: Cell) -> None:
        """Let it run a cell."""
        self.cell = cell
        # It may have died while it was idle; then the next message of it is the end.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(cell)

    def how_it_died(self) -> str:
        """Wait until the process has ended, and say how."""
        self._process.join()
        code = self._process.exitcode or 0
        if code >= 0:
            return f"the worker process ended with exit code {code}"
        name = signal.Signals(-code).name
        memory = ", often for want of memory: give fewer --workers" if name == "SIGKILL" else ""
        return f"the worker process was ended by {name}{memory}"

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        self._process.terminate()
        self._process.join()


def run_cells(
    cells: Sequence[Cell], work: Work, devices: Sequence[str]
) -> Iterator[tuple[Cell, Message]]:
    """Run all cells, and yield what is heard of each; its `Result` is the last.

    Args:
        cells: in the order in which they are begun.
        work: what they share.
        devices: one for each worker, such as "cpu" or "cuda:0".
    """
    waiting = deque(cells)
    workers = [Worker(work, device) for device in devices[: len(cells)]]
    try:
        for worker in workers:
            worker.give(waiting.popleft())
        while busy := {w.connection: w for w in workers if w.cell is not None}:
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index]
                assert worker.cell is not None
                cell, message = worker.cell, _hear(worker, work)
                yield cell, message
                if isinstance(message, Result):
                    worker.cell = None
                    if message.status == "failed":
                        # An error on a GPU spoils the process for every cell after it.
                        worker.stop()
                        workers.remove(worker)
                        if waiting:
                            worker = Worker(work, worker.device)
                            workers.append(worker)
                    if waiting:
                        worker.give(waiting.popleft())
    finally:
        for worker in workers:
            worker.stop()


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Let processes that are started here ignore Ctrl-C from their first import on."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _hear(worker: Worker, work: Work) -> Message:
    """Return the next message of a worker; if it has died, the result of its cell."""
    try:
        message: Message = worker.connection.recv()
    except (EOFError, OSError):  # the latter within a message
        assert worker.cell is not None
        result = result_of(worker.cell, work.protocol, "failed", reason=worker.how_it_died())
        folder = work.folder / worker.cell.folder
        folder.mkdir(parents=True, exist_ok=True)  # it may have died before it made it
        save_result(folder, result)
        return result
    return message


def run_worker(connection: Connection, work: Work, device: str) -> None:
    """Run the cells that come through the connection; the main process ends this one."""
    begin_worker()
    # Else the first bar, even a hidden one, makes a semaphore of the system, which stays behind
    # when the process is killed and is complained about at the end.
    tqdm.set_lock(threading.RLock())
    torch.set_num_threads(work.threads)
    place = torch.device(device)
    if place.type == "cuda":
        torch.cuda.set_device(place)
    cache = Cache(work.protocol.sequence_length, work.digests)
    while True:
        cell = connection.recv()
        try:
            result = run_cell(
                cell,
                work.folder / cell.folder,
                work.protocol,
                cache.load,
                device=place,
                predicts_test=work.predicts_test,
                send=connection.send,
            )
        except OSError as error:  # its end cannot be written, as on a full disk
            sys.exit(f"{cell.describe()}: {error}")
        connection.send(result)


class Cache:
    """Keeps the model and the rows that were used last: cells that share them follow each other."""

    def __init__(self, sequence_length: int, digests: Mapping[str, tuple[str, str]]) -> None:
        self._sequence_length, self._digests = sequence_length, digests
        self._source: Source | None = None
        self._pretrained: Pretrained | None = None
        self._rows_of: tuple[TaskSource, str, int] | None = None
        self._rows: EncodedTask | None = None

    def load(self, cell: Cell) -> tuple[Pretrained, EncodedTask]:
        """Return the model and the rows of a cell.

        Raises:
            ConfigError: the model cannot be loaded any more, or is another one.
            TaskError: the task cannot be read any more, or has other examples.
        """
        if self._pretrained is None or self._source != cell.source:
            self._pretrained, self._source = cell.source.load(), cell.source
        text_encoder = self._pretrained.text_encoder
        length = min(self._sequence_length, self._pretrained.sequence_length)
        wanted = (cell.task, text_encoder.tokenizer.to_str(), length)
        if self._rows is None or self._rows_of != wanted:
            self._rows = encode_task(self._read(cell.task), text_encoder, sequence_length=length)
            self._rows_of = wanted
        return self._pretrained, self._rows

    def _read(self, task: TaskSource) -> TaskData:
        data, name = task.load(), task.task.name
        if (data.labelled_digest, data.test_digest) != self._digests[name]:
            raise TaskError(
                f"the examples of {name} have changed since this grid was started; start it again "
                "to see how it goes on"
            )
        return data
