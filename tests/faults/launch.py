"""Starts trainers as processes that can be killed, and waits for them without waiting too long.

Two ways. The true command line (`python -m pretrain`, torchrun, the deepspeed launcher) costs the
import of torch each time. A forked trainer is a child of a process that has imported everything
and started no thread yet: it runs the same `pretrain/__main__.py` with the same arguments, and
dies a real death, a few hundredths of a second after it was asked for.
"""

import ctypes
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import psutil
from tqdm import tqdm

from tests.forked_command import environment, free_port

from .outcome import NotSurvivedError

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
LIMIT_SECONDS = 240.0  # for what takes two seconds: other work may share the machine
POLL_SECONDS = 0.002
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h


@dataclass
class Launch:
    """The processes of one start of a run: its ranks, or the launcher of its ranks."""

    processes: Sequence[Any]  # with pid, and a status that is None while they live
    output_file: Path
    statuses: Callable[[], list[int | None]]

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self.processes]

    @property
    def output(self) -> str:
        return self.output_file.read_text(errors="replace")

    @property
    def is_running(self) -> bool:
        return None in self.statuses()

    def send(self, number: int, rank: int | None = None) -> None:
        """Send a signal to all processes that still live, or to one of them."""
        for place, (pid, status) in enumerate(zip(self.pids, self.statuses(), strict=True)):
            if status is None and rank in (None, place):
                os.kill(pid, number)

    def wait(self, limit: float = LIMIT_SECONDS) -> list[int]:
        """Return how each process has ended: a status, or minus the number of a signal."""
        if not self.wait_until(lambda: False, limit):
            return [status for status in self.statuses() if status is not None]
        self.send(signal.SIGKILL)
        raise NotSurvivedError(f"still running after {limit:.0f} s: {self.tail()}")

    def wait_until(self, condition: Callable[[], bool], limit: float = LIMIT_SECONDS) -> bool:
        """Wait for a condition or the end; return whether something still runs."""
        deadline = time.monotonic() + limit
        while not condition() and time.monotonic() < deadline:
            if not self.is_running:
                return False
            time.sleep(POLL_SECONDS)
        return self.is_running

    def end_well(self) -> None:
        """Wait for an end in good order.

        Raises:
            NotSurvivedError: it ended otherwise, or not at all.
        """
        statuses = self.wait()
        if any(statuses):
            raise NotSurvivedError(f"ended with status {statuses}: {self.tail()}")

    def tail(self, characters: int = 1500) -> str:
        return self.output.replace("\r", "\n")[-characters:]


def fork_trainer(
    words: Sequence[str], output_file: Path, *, world_size: int, prepare: Callable[[int], None]
) -> Launch:
    """Fork the ranks of a run.

    Args:
        words: of `python -m pretrain`.
        output_file: gets what the ranks print.
        world_size: number of ranks.
        prepare: called with the rank in each child before it becomes a trainer.
    """
    port = free_port()
    context = get_context("fork")
    processes = [
        context.Process(
            target=_become_trainer,
            args=(list(words), output_file, rank, world_size, port, prepare, os.getpid()),
        )
        for rank in range(world_size)
    ]
    output_file.touch()
    for process in processes:
        process.start()
    return Launch(processes, output_file, lambda: [process.exitcode for process in processes])


def start_command(command: Sequence[str], output_file: Path) -> Launch:
    """Start a true command line."""
    with output_file.open("w") as output:
        process = subprocess.Popen(
            [*map(str, command)],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Launch([process], output_file, lambda: [process.poll()])


def launcher(kind: str, world_size: int, module: str = "pretrain") -> list[str]:
    """Return the words that start a module on so many ranks of this machine."""
    if kind == "torchrun":
        ranks = ("--standalone", f"--nproc-per-node={world_size}")
        return [sys.executable, "-m", "torch.distributed.run", *ranks, "-m", module]
    if kind == "deepspeed":
        port = str(free_port())
        ranks = ("--num_accelerators", str(world_size), "--master_port", port)
        return [str(BIN / "deepspeed"), *ranks, "--module", module]
    assert kind == "python" and world_size == 1, kind
    return [sys.executable, "-m", module]


def descendants(pid: int) -> list[psutil.Process]:
    """Return the processes that this one has started, and those that they have started."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def rank_process(launch: Launch, rank: int) -> psutil.Process | None:
    """Return the trainer of one rank under a launcher, once it is there."""
    for process in descendants(launch.pids[0]):
        try:
            # The launchers have no rank themselves.
            its_rank, parents = (p.environ().get("RANK") for p in (process, process.parent()))
        except (psutil.Error, AttributeError):
            continue  # it has just ended
        if its_rank == str(rank) and parents is None:
            return process
    return None


def kill_descendants() -> None:
    """Kill everything that this process has started, orphans too."""
    for _ in range(3):
        for process in descendants(os.getpid()):
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(descendants(os.getpid()), timeout=1)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent dies, so that they can be found."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when the one that started it is gone."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _become_trainer(
    words: list[str],
    output_file: Path,
    rank: int,
    world_size: int,
    port: int,
    prepare: Callable[[int], None],
    parent: int,
) -> None:
    die_with_parent(parent)
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    output = os.open(output_file, os.O_WRONLY | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    if world_size > 1:
        os.environ |= {
            **{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size)},
            **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)},
        }
    tqdm._instances.clear()  # the bar of this suite
    # tqdm's own lock is one for all processes: killed while it writes, a trainer would keep it.
    tqdm.set_lock(threading.RLock())
    prepare(rank)
    os.chdir(ROOT)
    sys.argv[1:] = words
    runpy.run_module("pretrain", run_name="__main__", alter_sys=True)
