"""Starts a few processes that add up numbers, as the ranks of a run do in every step.

They meet at a store that is opened here, so that no port has to be guessed.
"""

import datetime
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch.distributed as distributed

from pretrain.doctor.finding import CHECKOUT

START_SECONDS = 300.0  # to import torch, on a machine that has other things to do
LIMIT_SECONDS = 60.0
POLL_SECONDS = 0.05
HOST = "127.0.0.1"


class Trial(NamedTuple):
    """What came of it."""

    complaint: str = ""  # empty: it worked
    latency_seconds: float = 0.0
    bytes_per_second: float = 0.0


def try_ranks(
    backend: str,
    world_size: int,
    environment: Mapping[str, str],
    *,
    start_seconds: float = START_SECONDS,
) -> Trial:
    """Start the processes and wait until all are done, one fails, or the time is up.

    Args:
        backend: "gloo" or "nccl".
        world_size: number of processes.
        environment: that they are given.
        start_seconds: after which processes that are not there yet are killed; those that are have
            LIMIT_SECONDS more.
    """
    try:
        store = distributed.TCPStore(  # type: ignore[attr-defined]
            HOST,
            0,
            is_master=True,
            wait_for_workers=False,
            timeout=datetime.timedelta(seconds=LIMIT_SECONDS),
        )
    except distributed.DistError as error:
        return Trial(f"this machine cannot connect to itself at {HOST}: {_last_line(str(error))}")
    given = {**environment, "OMP_NUM_THREADS": "1"}
    given["PYTHONPATH"] = f"{CHECKOUT}:{environment.get('PYTHONPATH', '')}"
    words = [sys.executable, "-m", "pretrain.doctor.one_rank", backend, HOST, str(store.port)]
    with TemporaryDirectory() as folder:
        processes = []
        for rank in range(world_size):
            with (
                (Path(folder) / f"{rank}.out").open("w") as output,
                (Path(folder) / f"{rank}.err").open("w") as errors,
            ):
                process = subprocess.Popen(
                    [*words, str(rank), str(world_size)], env=given, stdout=output, stderr=errors
                )
            processes.append(process)
        complaint = _wait(processes, store, start_seconds, Path(folder))
        if complaint:
            return Trial(complaint)
        return Trial("", **json.loads((Path(folder) / "0.out").read_text()))


def up(rank: int) -> str:
    """Return the key under which a process says that it is there."""
    return f"up/{rank}"


def _wait(
    processes: Sequence[subprocess.Popen[bytes]],
    store: Any,
    start_seconds: float,
    folder: Path,
) -> str:
    """Return why it did not work, or nothing; no process is left."""
    limit, end = start_seconds, time.monotonic() + start_seconds
    names = [up(rank) for rank in range(len(processes))]
    try:
        while time.monotonic() < end:
            states = [process.poll() for process in processes]
            if all(state == 0 for state in states):
                return ""
            for rank, state in enumerate(states):
                if state:
                    errors = (folder / f"{rank}.err").read_text(errors="replace")
                    return f"process {rank} failed: {_last_line(errors) or f'status {state}'}"
            if names and store.check(names):
                names, limit, end = [], LIMIT_SECONDS, time.monotonic() + LIMIT_SECONDS
            time.sleep(POLL_SECONDS)
        return f"no answer within {limit:g} s"
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _last_line(text: str) -> str:
    """Return the last line of a traceback that is the error itself, without what is below it."""
    lines = [line.strip() for line in text.splitlines() if "Error" in line or "rror:" in line]
    return (lines or text.strip().splitlines() or [""])[-1][:300]
