"""Run a function over tasks in worker processes; the output does not depend on how many there are.

Workers are spawned, not forked: the tokenizer and the progress bar run threads in the main process,
and a process forked while one of them holds a lock may deadlock.
"""

import itertools
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Self, TypeVar

from data_prep.files.errors import UserError

Item = TypeVar("Item")
Task = TypeVar("Task")
Result = TypeVar("Result")

TOKENIZER_THREADS = "TOKENIZERS_PARALLELISM"  # read by the tokenizers library at every call


class WorkerDied(UserError):
    """A worker process was killed from outside, nearly always for lack of memory."""


class Workers:
    """A pool of processes, started at the first call with several tasks; for a `with` statement.

    With one worker everything is computed in this process, on one thread.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._executor: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        if self.count == 1:
            os.environ[TOKENIZER_THREADS] = "false"
        return self

    def __exit__(self, *_: object) -> None:
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)
            signal.signal(signal.SIGTERM, self._at_sigterm)

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """Yield `function(task)` for each task, in the order of the tasks.

        A single task is computed here, so that small inputs start no process. At most two tasks per
        worker are queued: the executor's own `map` would read the whole corpus into its queue.

        Raises:
            WorkerDied: A worker was killed.
        """
        tasks = iter(tasks)
        first = list(itertools.islice(tasks, 2))
        if len(first) < 2 or self.count == 1:
            yield from map(function, itertools.chain(first, tasks))
            return
        if self._executor is None:
            # As Ctrl-C: killed at once, Python reports semaphores of the pool as leaked.
            self._at_sigterm = signal.signal(signal.SIGTERM, signal.default_int_handler)
            self._executor = ProcessPoolExecutor(
                self.count,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=begin_worker,
            )
        waiting: deque[Future[Result]] = deque()
        try:
            for task in itertools.chain(first, tasks):
                waiting.append(self._executor.submit(function, task))
                if len(waiting) > 2 * self.count:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as error:
            raise WorkerDied(
                "a worker process was killed, probably for lack of memory; run the same command "
                f"again on fewer processors than {self.count}: taskset -c 0,1 COMMAND"
            ) from error
        finally:
            for future in waiting:
                future.cancel()


def begin_worker() -> None:
    """Initialise a worker: ignore Ctrl-C, end with the main process, use one core."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ[TOKENIZER_THREADS] = "false"
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)  # after SIGKILL the main process cannot stop its workers itself
