"""Works on the units of a sweep, as many at once as there are slots; names and locks folders.

A unit is an arm at a point of its grid with a seed: a pre-training run, a fine-tuning trial. It has
a folder, and is over when its result is there. A slot is where one unit at a time is worked on: a
launch plan, which starts a command for each, or a `Worker`, which calls a function for each. A unit
that fails, fails alone.
"""

import contextlib
import errno
import fcntl
import multiprocessing
import re
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Generic, TypeVar

from tqdm import tqdm

from data_prep.files.atomic import remove_strays
from data_prep.files.errors import UserError
from data_prep.files.quoting import on_one_line
from data_prep.files.workers import begin_worker
from pretrain.config.errors import ConfigError
from pretrain.train.launching.child import Children, Job

LOCK_FILE = "grid.lock"
# "spawn": a forked process cannot use CUDA, and may inherit a lock that is never released.
SPAWN = multiprocessing.get_context("spawn")

Unit = TypeVar("Unit")
Slot = TypeVar("Slot")
Send = Callable[[Any], None]
Ended = Callable[[Unit, int | Exception, bool], None]


def name_at(name: str, values: Iterable[str]) -> str:
    """Return the name of an arm at a point of its grid, by the words of its values."""
    return "-".join([name, *(re.sub(r"[^\w.-]+", "_", value).strip("_") for value in values)])


def unit_folder(place: Path, name: str, seed: int, values: Iterable[str] = ()) -> Path:
    """Return the folder of a unit: PLACE/NAME-VALUE-seedN."""
    return place / f"{name_at(name, values)}-seed{seed}"


def run_units(
    units: Sequence[Unit],
    slots: Sequence[Slot],
    job_of: Callable[[Unit, Slot], Job],
    ended: Ended[Unit],
) -> None:
    """Work on units, each on the first slot that is free.

    Args:
        units: in the order in which they are started.
        slots: as many units are worked on at once.
        job_of: returns what works on a unit on a slot.
        ended: called with a unit, its exit status or the error that kept it from starting, and
            whether a signal has asked to stop.

    Raises:
        SystemExit: a signal asked to stop; what was running has ended.
        UserError: from `ended`: no more units were started, and what was running has ended.
    """
    waiting, free = deque(units), deque(slots)
    started: dict[Job, tuple[Unit, Slot]] = {}
    statuses: list[int] = []  # of what was asked to stop
    errors: list[UserError] = []

    def end(unit: Unit, status: int | Exception) -> None:
        try:
            ended(unit, status, children.stopped)
        except UserError as error:
            errors.append(error)

    with Children() as children:
        while True:
            while waiting and free and not (errors or children.stopped):
                unit, slot = waiting.popleft(), free.popleft()
                try:
                    job = job_of(unit, slot)
                    children.start(job)
                    started[job] = unit, slot
                except (OSError, UserError) as error:  # such as no memory for another process
                    free.append(slot)
                    end(unit, error)
            if not children.running:
                break
            job, status = children.next_ended()
            unit, slot = started.pop(job)
            free.append(slot)
            statuses += [status] if children.stopped else []
            end(unit, status)
    if errors:
        raise errors[0]
    if children.stopped:
        sys.exit(max(statuses, default=0))


def numbered(names: Sequence[str]) -> Callable[[str, str], None]:
    """Return what prints a line on a unit, by its name: [3/12] NAME: TEXT."""
    numbers = {name: number for number, name in enumerate(names, 1)}

    def say(name: str, text: str) -> None:
        line = on_one_line(f"[{numbers[name]}/{len(names)}] {name}: {text}")
        tqdm.write(line)  # above a bar, if there is one

    return say


class Worker(Generic[Unit]):
    """A process that works on one unit after another; another one follows it if it ends."""

    def __init__(
        self,
        prepare: Callable[[], Callable[[Unit, Send], None]],
        receive: Callable[[Unit, Any], None],
    ) -> None:
        """Prepare it; the process is started with its first unit.

        Args:
            prepare: called once in the process; returns the function that works on a unit, and
                sends messages.
            receive: called here with the unit and each message.
        """
        self._prepare, self._receive = prepare, receive
        self._process: SpawnProcess | None = None
        self._unit: Unit | None = None
        self._stopped = 0  # by a signal: the status

    def job(self, unit: Unit) -> "Worker[Unit]":
        """Return what works on a unit, to be started."""
        self._unit = unit
        return self

    def start(self) -> None:
        """Begin with the unit."""
        if self._process is None:
            self._connection, theirs = SPAWN.Pipe()
            process = SPAWN.Process(target=_serve, args=(theirs, self._prepare), daemon=True)
            before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # which the process inherits
            try:
                process.start()
            finally:
                signal.signal(signal.SIGINT, before)
            self._process = process  # it began
            theirs.close()  # otherwise the connection would outlive the process
        # It may have died while it was idle: `status` finds that.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._connection.send(self._unit)

    def stop(self, number: int) -> None:
        """End the process, asked by a signal: there is nothing to save."""
        self._stopped = 128 + number
        self.end()

    def status(self) -> int | None:
        """Receive what the process has sent; return the status of the unit, None: it goes on."""
        if self._process is None:
            return self._stopped
        assert self._unit is not None
        while True:
            try:
                if not self._connection.poll():
                    return None
                message = self._connection.recv()
            except (EOFError, OSError):  # it has died; the latter within a message
                self._process.join()
                code, self._process = self._process.exitcode or 0, None
                return 128 - code if code < 0 else code or 1
            if message is None:
                return 0
            self._receive(self._unit, message)

    def end(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.terminate()
            self._process.join()
            self._process = None


def _serve(connection: Connection, prepare: Callable[[], Callable[[Any, Send], None]]) -> None:
    """Work on the units received from the connection, until the main process ends this one."""
    begin_worker()
    work = prepare()
    while True:
        work(connection.recv(), connection.send)
        connection.send(None)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make a folder and lock it against other sweeps; the lock ends with this process.

    Raises:
        ConfigError: another process holds the lock, the folder cannot be written, or the disk
            becomes full.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK_FILE).open("w")
    except OSError as error:
        raise ConfigError(
            f"cannot write into {folder}: {error.strerror}; choose another folder"
        ) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            raise ConfigError(
                f"another process is running a sweep in {folder}; wait for it, or choose another "
                "folder"
            ) from None
        except OSError:  # there are no locks on this disk
            pass
        try:
            remove_strays(folder)
            yield
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise ConfigError(
                f"cannot write into {folder}: {error.strerror}; make room, and continue the sweep"
            ) from None
